"""Rows of attacks that need no reconstruction: which of the candidate images are in a gradient, and in whose.

Both read the alignment of an image's gradient with the message (attacks/inversion/alignment.py). Membership is scored
by the loss too, and that of a few candidates by likelihood ratios over shadows (attacks/inversion/membership.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedprint.evaluation.inversion.membership import membership_outcome
from fedprint.evaluation.inversion.tracing import tracing_by_participants
from fedprint.kinds.inversion.results.judge import DEAL, CandidateScores, Numbers
from fedprint.kinds.inversion.results.scene import Scene
from fedprint.reports.numbers.inversion import ALIGNMENT, DRAWN, LIRA, LOSS
from fedprint.types import Measurement


def rows_of_candidates(scene: Scene, candidates: CandidateScores, participants: Sequence[int]) -> Iterator[Measurement]:
    """Yield example-level membership over all pairs of a candidate and a gradient, and tracing of the members.

    The pairs that were asked about by ratios have rows of every score, ``pairs: drawn``.
    """
    scores, owner = candidates.scores, candidates.owner
    whole = {ALIGNMENT: scores, LOSS: candidates.loss}
    updates = np.arange(scores.shape[1])
    here = scene.with_keys(attack=ALIGNMENT, attack_variant=None)
    member = owner[:, None] == updates
    for name, each in whole.items():
        yield from _membership(here.with_keys(attack=name), each, member)
    if candidates.asked.size:
        drawn = {name: np.take_along_axis(each, candidates.asked, 0) for name, each in whole.items()} | {
            LIRA: candidates.lira
        }
        for name, each in drawn.items():
            asked = here.with_keys(attack=name, pairs=DRAWN)
            yield from _membership(asked, each, np.take_along_axis(member, candidates.asked, 0))
    inside = owner >= 0
    dealt = sorted({n for n in participants if n < len(updates)} | {len(updates)})
    queries = replace(here, victims=owner[inside])
    traced = tracing_by_participants(scores[inside].argmax(1), owner[inside], len(updates), dealt, seed=DEAL)
    for outcome in traced:
        asked = queries.with_keys(level="participant", participants=outcome.participants)
        yield asked.stated("tracing_accuracy", outcome.accuracy, outcome.chance)


def _membership(here: Scene, scores: Numbers, member: Numbers) -> Iterator[Measurement]:
    """Yield AUC and TPR of scores (k, v) of k candidates of each gradient against the truth ``member`` (k, v)."""
    of_pair = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    rng = here.rng("example_membership")
    outcome = membership_outcome(scores.ravel(), member.ravel(), of_pair.ravel(), rng)
    pairs = replace(here, victims=of_pair.ravel()).with_keys(members=outcome.members, others=outcome.others)
    yield pairs.stated("example_membership_auc", outcome.auc, 0.5)
    rare = pairs.with_keys(fpr=outcome.fpr, fpr_bound=outcome.fpr_bound)
    yield rare.stated("example_membership_tpr", outcome.tpr, outcome.tpr_chance)
