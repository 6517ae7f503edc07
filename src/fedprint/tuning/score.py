"""The score of a trial, and which trial is measured again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedprint.tuning.space import Values

CONSTRAINT = "attack_ap"

ROUNDS = "rounds"
"""In ``details`` under a privacy budget: the mean number of rounds that it allowed."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Means over the seeds so far: ``utility`` normalised, ``attack_ap`` and its ``ceiling`` as fractions.

    ``upper`` is the upper end of the interval of ``attack_ap``, over users, and over seeds where there are several.
    ``details`` are further numbers for readers (AP by adversary, utility before normalisation, ...).
    """

    utility: float
    attack_ap: float
    upper: float
    ceiling: float
    details: Mapping[str, float]

    @property
    def excess(self) -> float:
        """The constraint's value: feasible at 0 or below."""
        return self.upper - self.ceiling


class Objective(Protocol):
    """Measures a strategy at ``values``: yields the score after each seed, so that a hopeless trial can be stopped."""

    def __call__(self, values: Values) -> Iterator[Score]:
        """Yield at least one score. Raises FedprintError where nothing can be measured (training diverged)."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A finished trial as reports need it.

    ``excess`` is the upper end of the interval of ``attack_ap`` less the ceiling, ``error`` why there is no score.
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
        """Whether it was measured to the end and stays below the ceiling with its whole interval."""
        return self.state == "complete" and self.excess is not None and self.excess <= 0


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
