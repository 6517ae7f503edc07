"""Rows of attacks that need no reconstruction: which of the images in hand are in a gradient, and in whose.

Both read the alignment of an image's own gradient with what was sent (attacks/inversion/alignment.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedprint.evaluation.membership import membership_outcome
from fedprint.evaluation.tracing import tracing_by_participants
from fedprint.pipeline.inversion.judge import DEAL, Sought
from fedprint.pipeline.inversion.scene import Scene
from fedprint.reports.inversion_rows import ALIGNMENT
from fedprint.types import Measurement


def rows_of_sought(scene: Scene, sought: Sought, participants: Sequence[int]) -> Iterator[Measurement]:
    """Yield example-level membership over all pairs of a candidate and a gradient, and tracing of the members."""
    scores, own = sought.scores, sought.own
    updates = scores.shape[1]
    here = scene.with_keys(attack=ALIGNMENT, attack_variant=None)
    of_pair = np.broadcast_to(np.arange(updates), scores.shape)
    pairs = replace(here, victims=of_pair.ravel())
    member = own[:, None] == of_pair
    rng = here.rng("example_membership")
    found = membership_outcome(scores.ravel(), member.ravel(), of_pair.ravel(), rng)
    counts = {"members": found.members, "others": found.others}
    yield pairs.with_keys(**counts).stated("example_membership_auc", found.auc, 0.5)
    rare = pairs.with_keys(**counts, fpr=found.fpr, fpr_bound=found.fpr_bound)
    yield rare.stated("example_membership_tpr", found.tpr, found.tpr_chance)
    inside = own >= 0
    dealt = sorted({n for n in participants if n < updates} | {updates})
    queries = replace(here, victims=own[inside])
    traced = tracing_by_participants(scores[inside].argmax(1), own[inside], updates, dealt, seed=DEAL)
    for outcome in traced:
        asked = queries.with_keys(level="participant", participants=outcome.participants)
        yield asked.stated("tracing_accuracy", outcome.accuracy, outcome.chance)
