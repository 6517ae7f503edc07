"""The score of a trial, its margin below the ceiling, and which trial is measured again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol

import numpy as np
from scipy.special import expit, logit

from fedprint.tuning.space import Values

CONSTRAINT = "attack_ap"
EDGE = 0.01
"""APs are clipped to this distance from 0 and 1 before their logits are taken."""

ROUNDS = "rounds"
"""In ``details`` under a privacy budget: the mean number of rounds that it allowed."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Means over the seeds so far: ``utility`` normalised, ``attack_ap`` and its ``ceiling`` as fractions.

    The ceiling applies to ``attack_ap``, which is of single updates or of linked ones. ``details`` are further numbers
    for readers (AP by adversary, utility before normalisation, ...).
    """

    utility: float
    attack_ap: float
    ceiling: float
    details: Mapping[str, float]

    def excess(self, margin: float) -> float:
        """Return the constraint's value: feasible at 0 or below."""
        return self.attack_ap + margin - self.ceiling


class Objective(Protocol):
    """Measures a strategy at ``values``: yields the score after each seed, so that a hopeless trial can be stopped."""

    def __call__(self, values: Values) -> Iterator[Score]:
        """Yield at least one score. Raises FedprintError where nothing can be measured (training diverged)."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A finished trial as reports need it: ``excess`` is AP + margin - ceiling, ``error`` why it has no score.

    ``retry_of`` is the number of the trial of a dead worker that this one repeats.
    """

    number: int
    values: Mapping[str, Any]
    state: str
    utility: float | None
    attack_ap: float | None
    ceiling: float | None
    excess: float | None
    error: str | None = None
    retry_of: int | None = None
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def feasible(self) -> bool:
        """Whether it was measured to the end and stays below the ceiling, margin included."""
        return self.state == "complete" and self.excess is not None and self.excess <= 0


def margin_of(measured: Sequence[tuple[float, float]], ceiling: float) -> float:
    """Return how far below the ceiling a trial's AP must lie for its interval to lie there too; all APs are fractions.

    ``measured`` are an AP and the upper end of its interval, each over as many seeds as a result has. Their mean
    distance, in logits, is taken off the ceiling: APs vary less the lower they are (LOG.md, Tuning). A result may have
    worse luck than its trial, so it is measured again, and stronger trials after it.
    """
    values, ends = (logit(np.clip(column, EDGE, 1 - EDGE)) for column in zip(*measured, strict=True))
    edge = min(ceiling, 1 - EDGE)
    return float(edge - expit(logit(edge) - fmean((ends - values).tolist())))


def ranked(trials: Sequence[Finished]) -> list[Finished]:
    """Return the trials that are worth measuring again, best first, each point of the space once.

    Feasible trials by utility; if there are none, all by their distance from the ceiling. Among equals, trials with
    fewer rounds of a privacy budget come first (papers.md, section 3), then earlier ones.
    """

    def tie(trial: Finished) -> tuple[float, int]:
        return trial.details.get(ROUNDS, 0.0), trial.number

    measured = [trial for trial in trials if trial.state == "complete" and trial.excess is not None]
    feasible = sorted((t for t in measured if t.feasible), key=lambda t: (-_known(t.utility), *tie(t)))
    order = feasible or sorted(measured, key=lambda t: (_known(t.excess), *tie(t)))
    seen: dict[str, Finished] = {}
    for trial in order:
        seen.setdefault(repr(sorted(trial.values.items())), trial)
    return list(seen.values())


def next_candidate(trials: Sequence[Finished], tried: Sequence[tuple[Finished, float | None]]) -> Finished | None:
    """Return the trial to measure on fresh seeds, None where one of ``tried`` holds or none is left.

    ``tried`` are trials with the excess over the ceiling of their interval's upper end, None where training diverged.
    The first is the best of :func:`ranked`. Each next one is the best of those whose AP in the search was lower by the
    least excess so far, else the one with the lowest AP, if that is lower at all.
    """
    excesses = [(_known(trial.attack_ap), excess) for trial, excess in tried if excess is not None]
    if any(excess <= 0 for _, excess in excesses):
        return None
    done = [dict(trial.values) for trial, _ in tried]
    left = [trial for trial in ranked(trials) if dict(trial.values) not in done]
    if not excesses or not left:
        return left[0] if left else None
    enough = min(ap - excess for ap, excess in excesses)
    strongest = min(left, key=lambda trial: _known(trial.attack_ap))
    lower = strongest if _known(strongest.attack_ap) < min(ap for ap, _ in excesses) else None
    return next((trial for trial in left if _known(trial.attack_ap) <= enough), lower)


def _known(value: float | None) -> float:
    assert value is not None
    return value
