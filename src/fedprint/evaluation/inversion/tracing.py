"""How often an image is traced to the right participant, by the number of participants (papers.md 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.intervals import Interval, hit_interval
from fedprint.rng import numpy_rng
from fedprint.types import FedprintError


@dataclass(frozen=True, kw_only=True)
class TracingOutcome:
    """``accuracy`` among ``participants``; ``chance`` is that of a participant drawn by its share of the updates.

    The papers' tracing distance is 1 - accuracy.
    """

    participants: int
    accuracy: Interval
    chance: float


def tracing_by_participants(
    traced: ArrayLike, truth: ArrayLike, updates: int, counts: Sequence[int], *, seed: int, confidence: float = 0.95
) -> tuple[TracingOutcome, ...]:
    """Return the tracing accuracy for each number of participants in ``counts``, who share the ``updates``.

    ``traced`` and ``truth`` (q,) are the update to which each query was traced and the one that holds it. As many
    participants as updates is image-index tracing. Intervals are Clopper and Pearson's; where updates hold several
    queries each, updates are drawn whole. Raises FedprintError for more participants than updates.
    """
    guess, real = np.asarray(traced, int), np.asarray(truth, int)
    return tuple(_outcome(guess, real, participants_of(updates, n, seed), confidence) for n in counts)


def participants_of(updates: int, participants: int, seed: int) -> np.ndarray:
    """Return the participant (updates,) that sent each update: random, as evenly spread as possible."""
    if not 1 <= participants <= updates:
        raise FedprintError(f"tracing: {participants} participants for {updates} updates; choose 1 to {updates}")
    order = numpy_rng(seed, "tracing", participants).permutation(updates)
    owners = np.empty(updates, dtype=np.int64)
    owners[order] = np.arange(updates) % participants
    return owners


def _outcome(traced: np.ndarray, truth: np.ndarray, owners: np.ndarray, confidence: float) -> TracingOutcome:
    hits = (owners[traced] == owners[truth]).astype(float)
    participants = int(owners.max()) + 1
    shares = np.bincount(owners) / len(owners)
    accuracy = hit_interval(hits, truth, numpy_rng(0, "tracing-interval"), confidence=confidence)
    return TracingOutcome(participants=participants, accuracy=accuracy, chance=float((shares**2).sum()))
