"""The result of a study: one operating point per strategy, measured on seeds that the search did not use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedprint.evaluation.rows import GUARANTEE
from fedprint.evaluation.tradeoffs.planes import STRONGEST, attack_row, normalised_row, strongest_row
from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.tuning.score import Finished
from fedprint.types import FedprintError

Ends = tuple[float, float]

CONFIRMED = "Keeps below the ceiling with its whole interval, with development and with confirmation users."
NOT_CONFIRMED = "Keeps below the ceiling with development users, breaks it with confirmation users: no operating point."


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The privacy guarantee of one federation at an operating point.

    The names are those of rows.GUARANTEE: ``epsilon`` is a device's, ``epsilon_user`` that of a user with both devices
    where it can be computed, ``communication`` the planned number of updates; ``not_covered`` is joined by semicolons.
    It covers the released models of one training, not the search that chose its settings.
    """

    epsilon: float
    epsilon_user: float | None
    delta: float
    accountant: str
    sampling: str
    adjacency: str
    rounds: int
    communication: int
    not_covered: str


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """The best settings of a strategy; numbers are means over the fresh ``seeds``, ``intervals`` over seeds and users.

    ``utility`` is normalised to no defence, ``attack_ap`` the AP of the strongest adversary, who has the ``view``.
    ``trial`` is the trial of the search, ``measured`` the number of candidates that were measured on fresh seeds until
    one stayed below the ceiling, or none was left. Numbers are None where training diverged under every candidate.
    ``guarantee`` is that of each seed's federation, None without a finite epsilon.

    ``attack_ap`` and ``chance`` are of single updates, ``linked_ap`` and ``linked_chance`` of ``updates`` linked
    updates of a device. It is ``feasible`` where the upper end of the interval of ``linked_ap`` is at most ``ceiling``.
    ``confirmation`` is the same with confirmation users, who were looked at once; None where none are declared, or
    where no candidate was feasible before. Where there is one, ``feasible`` and ``note`` are about it.
    """

    strategy: str
    parameters: Mapping[str, Any]
    feasible: bool
    utility: float | None
    attack_ap: float | None
    ceiling: float | None
    chance: float | None
    linked_ap: float | None
    linked_chance: float | None
    updates: int
    view: str | None
    defended: str | None
    intervals: Mapping[str, Ends]
    by_adversary: Mapping[str, Mapping[str, float]]
    seeds: tuple[int, ...]
    n_users: int
    data_factor: float
    trial: int | None
    measured: int
    trials: Mapping[str, int]
    note: str
    guarantee: Guarantee | None = None
    confirmation: OperatingPoint | None = None

    @property
    def excess(self) -> float | None:
        """How far the upper end of the judged interval lies above the ceiling; None where nothing was measured."""
        return None if self.ceiling is None or not self.intervals else self.intervals["linked_ap"][1] - self.ceiling

    def confirmed_by(self, result: OperatingPoint | None) -> OperatingPoint:
        """Return the point with what confirmation users showed, None where training diverged on a seed of theirs."""
        if result is None:
            return replace(self, feasible=False, note="Training diverged with confirmation users.")
        note = CONFIRMED if result.feasible else NOT_CONFIRMED
        return replace(self, confirmation=result, feasible=result.feasible, note=note)

    def as_json(self) -> dict[str, Any]:
        """Return the content of its entry in operating_points.json."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The trials of one strategy; ``importances`` of the parameters sum to 1."""

    strategy: str
    trials: tuple[Finished, ...]
    importances: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The number of trials by how they ended."""
        return {state: sum(t.state == state for t in self.trials) for state in ("complete", "pruned", "fail")}


def operating_point(
    search: SearchResult,
    trial: Finished,
    points: Sequence[Point],
    undefended: Mapping[int, Point],
    ceiling: float,
    updates: int,
) -> OperatingPoint:
    """Return the result of a candidate on fresh seeds; ``ceiling`` is an AP over ``updates`` linked updates.

    Raises FedprintError where no such AP was measured.
    """
    attack, utility = attack_row(points), normalised_row(points, undefended)
    linked = strongest_row(points, updates)
    if linked is None:
        raise FedprintError(f"strategy '{search.strategy}': no AP over {updates} linked updates; lower ceiling.updates")
    adversaries = sorted({number.adversary for point in points for number in point.attacks})
    feasible = linked["hi"] <= ceiling
    rows = {"utility": utility, "attack_ap": attack, "linked_ap": linked}
    return OperatingPoint(
        strategy=search.strategy,
        parameters=dict(trial.values),
        feasible=feasible,
        utility=utility["value"],
        attack_ap=attack["value"],
        ceiling=ceiling,
        chance=attack["chance"],
        linked_ap=linked["value"],
        linked_chance=linked["chance"],
        updates=updates,
        view=points[0].strongest.view,
        defended=points[0].defended,
        intervals={name: (row["lo"], row["hi"]) for name, row in rows.items()},
        by_adversary={
            name: {key: row[key] for key in ("value", "lo", "hi")}
            for name in (*adversaries, STRONGEST)
            for row in [attack_row(points, name)]
        },
        seeds=tuple(point.seed for point in points),
        n_users=attack["n_users"],
        data_factor=sum(point.data_factor for point in points) / len(points),
        trial=trial.number,
        measured=1,
        trials=search.counts,
        note=_note(feasible, trial.feasible),
        guarantee=guarantee_of(points),
    )


def guarantee_of(points: Sequence[Point]) -> Guarantee | None:
    """Return the points' guarantee, of several the one with the largest epsilon; None where one of them has none.

    Epsilon depends on settings and sizes only, so all seeds of one configuration have the same.
    """
    rows_of = [next((row for row in point.rows if row.get("epsilon") is not None), None) for point in points]
    known = [row for row in rows_of if row is not None]
    if not known or len(known) < len(rows_of):
        return None
    worst = max(known, key=lambda row: float(row["epsilon"]))
    return Guarantee(**{name: worst[name] for name in GUARANTEE})


def unmeasured_point(
    search: SearchResult, seeds: Sequence[int], tried: Sequence[Finished], ceiling: float, updates: int
) -> OperatingPoint:
    """Return the entry of a strategy for which no federation on fresh seeds was completed.

    The ``ceiling`` (an AP) is that of the undefended federations of the same users.
    """
    return OperatingPoint(
        strategy=search.strategy,
        parameters=dict(tried[0].values) if tried else {},
        feasible=False,
        **dict.fromkeys(
            ("utility", "attack_ap", "chance", "linked_ap", "linked_chance", "view", "defended"),
        ),
        ceiling=ceiling,
        updates=updates,
        intervals={},
        by_adversary={},
        seeds=tuple(seeds),
        n_users=0,
        data_factor=1.0,
        trial=tried[0].number if tried else None,
        measured=len(tried),
        trials=search.counts,
        note=f"Nothing could be measured: {_reason(search, tried)}",
    )


def _reason(search: SearchResult, tried: Sequence[Finished]) -> str:
    """Return why a strategy has no number: no trial was finished, none could be measured, or none on fresh seeds."""
    if tried:
        return "every candidate diverged on a fresh seed"
    errors = [trial.error for trial in search.trials if trial.error]
    return errors[0] if errors else "no trial was finished; raise trials or timeout_minutes and repeat the command"


def _note(feasible: bool, promised: bool) -> str:
    if feasible:
        return "Keeps below the ceiling with its whole interval."
    if promised:
        return "On fresh seeds the interval of every candidate reaches above the ceiling: this one's by the least."
    return "No trial was feasible: this is the one nearest to the ceiling."
