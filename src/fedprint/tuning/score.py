"""The score of a trial, its margin below the ceiling, and the order of trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any, Protocol

import numpy as np
from scipy.special import expit, logit
from scipy.stats import t as student_t

from fedprint.tuning.space import Values
from fedprint.types import FedprintError

CONSTRAINT = "attack_ap"
CONFIDENCE = 0.95
"""One-sided, of the margin."""
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


def margin_of(repeats: Sequence[float], ceiling: float, seeds: int, fresh_seeds: int) -> float:
    """Return how far below the ceiling a trial's AP must lie; all APs are fractions.

    On the scale of logits it is ``t * s * sqrt(1/seeds + 1/fresh_seeds)``: ``s`` is the standard deviation over repeat
    seeds at one point, ``t`` Student's one-sided 95 % quantile at their degrees of freedom. A trial's mean over
    ``seeds`` and the mean over ``fresh_seeds`` differ by less in 95 % of all draws if logits vary as much near the
    ceiling as at that point; APs themselves vary less the lower they are (LOG.md, Tuning). The margin does not
    account for the luck of the best of many trials, which is why the chosen trial is measured again.
    """
    if len(repeats) < 2:
        raise FedprintError(f"a margin needs at least 2 repeat seeds, got {len(repeats)}; add seeds to margin_seeds")
    quantile = float(student_t.ppf(CONFIDENCE, len(repeats) - 1))
    spread = stdev(logit(np.clip(repeats, EDGE, 1 - EDGE)).tolist())
    below = quantile * spread * math.sqrt(1 / seeds + 1 / fresh_seeds)
    edge = min(ceiling, 1 - EDGE)
    return float(edge - expit(logit(edge) - below))


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


def _known(value: float | None) -> float:
    assert value is not None
    return value
