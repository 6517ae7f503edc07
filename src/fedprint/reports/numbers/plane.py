"""Numbers of a sweep: what each strategy yields at each strength, who is on the front, what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from fedprint.attacks.choices import HEADLINE
from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import NUMBERS, POOLED, Row, pool_seeds
from fedprint.evaluation.tradeoffs.planes import (
    BEST,
    STRONGEST,
    attack_row,
    difference_row,
    linked_row,
    lost_row,
    normalised_row,
    number_of,
    private_rows,
    ratio_row,
    reduction_row,
    worst_row,
)
from fedprint.evaluation.tradeoffs.tradeoff import LINKAGE, Point, pareto_front
from fedprint.reports.numbers.evaluations import CHOSEN
from fedprint.reports.wording import MISSING
from fedprint.types import Linkage

NO_DEFENCE = "no defence"
KEPT = (None, "linked", "effort")
"""Analyses whose rows a sweep keeps beside those of no analysis."""
POOLED_METRICS = ("ap", "ap_over_chance", "ap_over_prevalence", "top1", "top5", "tpr_1", "tpr_01")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One strategy at one strength; ``points`` of those seeds that ran to their end, ``error`` why others did not.

    ``audits`` are rows of ``epsilon_lower``, one per seed, where the mechanism was audited.
    """

    strategy: str | None
    strength: float | None
    points: tuple[Point, ...]
    error: str | None = None
    audits: tuple[Row, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether at least one seed ran to its end."""
        return bool(self.points)

    @property
    def label(self) -> str:
        """The strategy's name in words."""
        return self.strategy or NO_DEFENCE

    @property
    def amount(self) -> str:
        """The strength in words."""
        return MISSING if self.strength is None else f"{self.strength:g}"

    @property
    def name(self) -> str:
        """Strategy and strength in words."""
        return self.label if self.strength is None else f"{self.label} {self.strength:g}"

    @cached_property
    def by_seed(self) -> Mapping[int, Point]:
        """The points by their seed."""
        return {point.seed: point for point in self.points}

    def adversary(self, name: str) -> str:
        """Return the adversary to read: against no defence there may be one only, which nothing could adapt to."""
        known = {number.adversary for point in self.points for number in point.attacks}
        return name if name in {*known, STRONGEST} else BEST

    def attack(self, name: str) -> Row:
        """Return the AP of an adversary."""
        return attack_row(self.points, self.adversary(name))

    def over_chance(self, name: str) -> Row:
        """Return that AP over chance: the horizontal axis of the plane."""
        return ratio_row(self.points, self.adversary(name))

    def linked(self, name: str) -> Row | None:
        """Return the AP of an adversary who links a device's updates; None where nothing can be linked."""
        return linked_row(self.points, self.adversary(name))

    def view(self, name: str) -> str:
        """Return what that adversary sees of every round."""
        return number_of(self.points[0], self.adversary(name)).view

    def utility(self, plain: Entry) -> Row:
        """Return the utility normalised to no defence: the vertical axis."""
        return normalised_row(self.points, plain.by_seed)

    def private(self, plain: Entry, public: Entry) -> dict[str, Row]:
        """Return what private data decide (``private_rows``); nothing where it was not measured."""
        return private_rows(self.points, plain.by_seed, public.by_seed) or {}

    def worst(self) -> Row | None:
        """Return the utility of the tenth of the users who are worst off."""
        return worst_row(self.points)

    def reduction(self, plain: Entry, name: str) -> Row | None:
        """Return the share of the undefended AP that is gone."""
        return reduction_row(self.points, plain.by_seed, self.adversary(name))

    def less_than(self, other: Entry, name: str, linkage: Linkage = LINKAGE) -> Row | None:
        """Return the share of another entry's AP, of the same adversary, that is gone."""
        return reduction_row(self.points, other.by_seed, self.adversary(name), other.adversary(name), linkage)

    def more_than(self, other: Entry, name: str) -> Row | None:
        """Return how much more AP the same adversary has here than under another entry, paired over users."""
        return difference_row(self.points, other.by_seed, self.adversary(name), other.adversary(name))

    def lost(self, other: Entry) -> Row | None:
        """Return how much less utility this has than another entry, paired over the test users."""
        return lost_row(self.points, other.by_seed)

    def missed(self, weaker: str, stronger: str) -> Row | None:
        """Return the share of one adversary's AP that another misses, below 0 where that one has more.

        None where not both attacked.
        """
        if {self.adversary(weaker), self.adversary(stronger)} != {weaker, stronger}:
            return None
        return reduction_row(self.points, self.by_seed, weaker, stronger)


def measured(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of which at least one seed ran to its end."""
    return [entry for entry in entries if entry.is_measured]


def public_entry(entries: Sequence[Entry]) -> Entry | None:
    """Return the point that trains on public data alone, bkg-repl at alpha = 1, if it was swept."""
    known = (entry for entry in measured(entries) if entry.strength == 1 and entry.points[0].defence == "bkg-repl")
    return next(known, None)


def decides(gain: Row) -> bool:
    """Return whether private data decide utility: the interval of what they add (``private_gain``) is above 0."""
    return float(gain["lo"]) > 0


def front(entries: Sequence[Entry], plain: Entry, adversary: str) -> list[Entry]:
    """Return the Pareto front by AP over chance: entries that none beats in both, least AP first."""
    known = measured(entries)
    values = [(entry.over_chance(adversary)["value"], entry.utility(plain)["value"]) for entry in known]
    return [known[position] for position in pareto_front(values)]


def readings(adversaries: Sequence[str]) -> tuple[str, ...]:
    """Return whom numbers are about: each adversary, and the better of several in each seed."""
    return (*adversaries, BEST) if len(adversaries) > 1 else tuple(adversaries)


def overhead(entry: Entry, plain: Entry) -> dict[str, float | None]:
    """Return what a defence costs: factors of processor time and data, and seconds per device and update."""
    pairs = [(point.overhead.get("federation_seconds"), point) for point in entry.points]
    times = [
        seconds / base
        for seconds, point in pairs
        if seconds and (base := plain.by_seed[point.seed].overhead.get("federation_seconds"))
    ]
    return {
        "time_factor": fmean(times) if times else None,
        "data_factor": fmean(point.data_factor for point in entry.points) if entry.points else None,
        **{
            name: _mean([point.overhead.get(name) for point in entry.points])
            for name in ("cluster_seconds", "data_seconds_per_device", "update_seconds_per_device")
        },
    }


def headline(entry: Entry, plain: Entry) -> dict[str, float]:
    """Return the few numbers of an entry that a tracking page compares; ``ap`` is the headline's adversary's."""
    if not entry.points:
        return {}
    attack, costs = entry.attack(HEADLINE), overhead(entry, plain)
    names = sorted({number.adversary for point in entry.points for number in point.attacks})
    values = {
        "utility/normalised": entry.utility(plain)["value"],
        "attack/ap": attack["value"],
        "attack/ap_lo": attack["lo"],
        "attack/ap_hi": attack["hi"],
        "attack/ap_over_chance": entry.over_chance(HEADLINE)["value"],
        **{f"attack/ap_{name}": entry.attack(name)["value"] for name in names},
        "attack/ap_any_attack": entry.attack(STRONGEST)["value"],
        **{f"overhead/{name}": value for name, value in costs.items()},
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def measurement_rows(experiment: str, entries: Sequence[Entry]) -> list[Row]:
    """Return all measurements with their ``strategy`` and ``strength``: of single seeds, and pooled over seeds.

    The evaluate stage's rows as they are; normalised utility, what private data decide, the utility of the worst tenth
    of users, and the reduction of AP beside them, with the same keys.
    Pooled are the chosen attackers, under the attack ``selected``, and the utilities.
    """
    plain, public = entries[0], public_entry(entries)
    rows = [row for entry in measured(entries) for row in _rows(experiment, entry, plain, public)]
    chosen = [{**row, "attack": CHOSEN, "layers": None} for row in rows if row.get("selected")]
    pooled = [row for row in chosen if row["metric"] in (*POOLED_METRICS, "ap_reduction", "ap_difference")]
    pooled += [row for row in rows if row.get("attack") is None and row["training"] == "federated"]
    return rows + [row for row in pool_seeds(pooled) if row["seed"] == POOLED]


def _rows(experiment: str, entry: Entry, plain: Entry, public: Entry | None) -> list[Row]:
    keys = {"experiment": experiment, "strategy": entry.label, "strength": entry.strength}
    rows: list[Row] = []
    decided = entry.private(plain, public) if public else {}
    for point in entry.points:
        own = [{**row, **keys} for row in (*point.rows, *point.analyses) if row.get("analysis") in KEPT]
        utility = next(row for row in own if row["attack"] is None and row["training"] == "federated")
        single = private_rows([point], plain.by_seed, public.by_seed) if public and decided else None
        shares = [row for metric, row in (single or {}).items() if metric in decided]
        lost = None if single else lost_row([point], plain.by_seed)  # the shares have it
        useful = [normalised_row([point], plain.by_seed), *shares, lost, worst_row([point])]
        derived = [{**utility, **_numbers(row)} for row in useful if row]
        for number in (number for number in point.attacks if number.selected):
            reduction = reduction_row([point], plain.by_seed, number.adversary)
            like = next(r for r in own if _is_number(r, number.adversary, number.view))
            derived += [{**like, **_numbers(reduction)}] if reduction else []
        rows += [*own, *derived]
    return rows


def _is_number(row: Row, adversary: str, view: str) -> bool:
    wanted = {"metric": "ap", "linkage": "update", "selected": True, "adversary": adversary, "view": view}
    return all(row.get(key) == value for key, value in wanted.items())


def _numbers(row: Row) -> dict[str, Any]:
    higher = METRICS[row["metric"]].higher_is_better
    return {**{name: row.get(name) for name in NUMBERS}, "direction": f"{'higher' if higher else 'lower'} is better"}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
