"""Rows -> table models. Pure functions: what is printed is decided here, how it looks in the template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

from fedprint.evaluation.rows import Row
from fedprint.evaluation.shuffled import PermutationTest, Verdict, judge_jointly
from fedprint.reports.numbers.checks import pooled_test
from fedprint.reports.numbers.evaluations import CONTROL, Evaluation, prior_rank
from fedprint.reports.numbers.order import TRAINING_ORDER, attack_rank, rank
from fedprint.reports.numbers.reference import Published, comparable, published_row, published_utility
from fedprint.reports.wording import Estimate, NoLink, estimate

LINKAGE_ORDER = ("update", "device")
BEST = 2
"""How many attackers stand beside the chosen one before the full list."""
NO_ATTACKER = "chance"
"""The name of random scores. Rows say that they are selected where nothing else attacked; no page says so."""

K = TypeVar("K")

Numbers = Mapping[str, Estimate]
"""Metric -> estimate."""


@dataclass(frozen=True, kw_only=True)
class AttackLine:
    """One attacker under one prior: ``by_linkage`` holds its numbers, ``published`` the paper's rows or None."""

    attack: str
    layers: str
    chosen: bool
    votes: str
    by_linkage: Mapping[str, Numbers]
    published: tuple[Published | None, ...]


@dataclass(frozen=True, kw_only=True)
class AttackTable:
    """All attackers under one prior; ``published`` names the columns of published data sets."""

    prior: str
    published: tuple[str, ...]
    lines: tuple[AttackLine, ...]

    @property
    def best(self) -> AttackLine | None:
        """Return the chosen attacker's line."""
        return next((line for line in self.lines if line.chosen), None)

    @property
    def leading(self) -> tuple[AttackLine, ...]:
        """Return the chosen attacker's line and those of the :data:`BEST` others by AP of one update."""
        others = [line for line in self.lines if not line.chosen and line.attack != NO_ATTACKER]
        others.sort(key=lambda line: -_ap(line))
        return (*(line for line in self.lines if line.chosen), *others[:BEST])

    @property
    def chance(self) -> Mapping[str, float]:
        """Return the chance of each hit rate that is the same for all attackers and linkages of the table."""
        levels: dict[str, set[float | None]] = {"top1": set(), "top5": set(), "tpr_01": set()}
        for line in self.lines:
            for numbers in line.by_linkage.values():
                for metric in levels.keys() & numbers.keys():
                    levels[metric].add(numbers[metric].chance)
        return {
            metric: level
            for metric, known in levels.items()
            for level in known
            if level is not None and len(known) == 1
        }


@dataclass(frozen=True, kw_only=True)
class UtilityLine:
    """Test-set utility of one way of training; ``published`` holds (data set, metric, value) of the papers."""

    prior: str
    training: str
    estimate: Estimate
    published: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    """One shuffled-label check with its Bonferroni-adjusted two-sided p."""

    name: str
    test: PermutationTest
    adjusted: float


@dataclass(frozen=True, kw_only=True)
class LinkLine:
    """The chosen attacker under one prior beside what clumped updates score without a link."""

    prior: str
    linkage: str
    estimate: Estimate
    null: NoLink | None


@dataclass(frozen=True, kw_only=True)
class ChoiceLine:
    """What an attack settled on on prior updates; log-loss in nats."""

    prior: str
    seed: int
    attack: str
    selected: bool
    settings: tuple[tuple[str, str], ...]
    log_loss: float | None
    chance_log_loss: float | None
    temperature: float | None
    seconds: float | None


def attack_tables(rows: Sequence[Row], all_seeds: Sequence[Row] = ()) -> tuple[AttackTable, ...]:
    """Return one table per prior from final rows; ``all_seeds`` tells how many seeds chose an attacker."""
    attacked = [row for row in rows if row.get("attack")]
    groups = _group(attacked, lambda row: row["prior"])
    return tuple(_attack_table(prior, groups[prior], all_seeds) for prior in sorted(groups, key=prior_rank))


def utility_lines(rows: Sequence[Row]) -> tuple[UtilityLine, ...]:
    """Return the utility rows by prior and training, the paper's value where data set and metric agree."""
    utility = [row for row in rows if not row.get("attack") and row.get("training")]
    utility.sort(key=lambda row: (prior_rank(row["prior"]), rank(TRAINING_ORDER, row["training"]), row["metric"]))
    return tuple(
        UtilityLine(prior=row["prior"], training=row["training"], estimate=estimate(row), published=_paper_utility(row))
        for row in utility
    )


def no_link(evaluations: Sequence[Evaluation], prior: str, linkage: str) -> NoLink | None:
    """Return the permutation null under the true labels: mean over the seeds, and their largest p."""
    entries = [item.details.get("null", {}).get(linkage) for item in evaluations if item.prior == prior]
    known = [entry for entry in entries if entry]
    if not known:
        return None
    return NoLink(
        null_mean=fmean(entry["null_mean"] for entry in known), p_high=max(entry["p_high"] for entry in known)
    )


def link_lines(tables: Sequence[AttackTable], evaluations: Sequence[Evaluation]) -> tuple[LinkLine, ...]:
    """Return the chosen attacker of every prior and linkage beside its permutation null, the control first."""
    lines = [
        LinkLine(
            prior=table.prior, linkage=linkage, estimate=numbers["ap"], null=no_link(evaluations, table.prior, linkage)
        )
        for table in tables
        if table.best
        for linkage, numbers in table.best.by_linkage.items()
        if "ap" in numbers
    ]
    return tuple(sorted(lines, key=lambda line: line.prior != CONTROL))


def judged_checks(evaluations: Sequence[Evaluation]) -> tuple[Verdict, tuple[CheckLine, ...]]:
    """Judge the shuffled-label checks of all attacks, linkages and priors at once, seeds pooled, most extreme first."""
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for item in evaluations:
        for name, entry in sorted(item.details.get("checks", {}).items()):
            entries.setdefault(f"{item.prior}/{name}", []).append(entry)
    checks = {name: pooled_test(seeds) for name, seeds in entries.items()}
    judged = judge_jointly(checks)
    lines = [CheckLine(name=name, test=test, adjusted=judged.adjusted[name]) for name, test in checks.items()]
    return judged, tuple(sorted(lines, key=lambda line: (line.adjusted, line.test.p_two_sided, line.name)))


def choice_lines(evaluations: Sequence[Evaluation]) -> tuple[ChoiceLine, ...]:
    """Return what each attack settled on, per prior and seed."""
    return tuple(
        ChoiceLine(
            prior=item.prior,
            seed=item.seed,
            attack=attack,
            selected=attack == item.details.get("selected") and attack != NO_ATTACKER,
            settings=tuple((str(key), _plain(value)) for key, value in sorted(entry.get("settings", {}).items())),
            log_loss=entry.get("log_loss"),
            chance_log_loss=item.details.get("chance_log_loss"),
            temperature=entry.get("temperature"),
            seconds=entry.get("seconds"),
        )
        for item in evaluations
        for attack, entry in sorted(item.details.get("attacks", {}).items(), key=lambda pair: attack_rank(pair[0]))
    )


def _attack_table(prior: str, rows: Sequence[Row], all_seeds: Sequence[Row]) -> AttackTable:
    columns = tuple(name for name in comparable(rows[0]["dataset"]) if published_row(name, prior, "mlp"))
    groups = _group(rows, lambda row: (row["attack"], _layers(row)))
    lines = [_attack_line(group, columns, all_seeds) for group in groups.values()]
    return AttackTable(
        prior=prior,
        published=columns,
        lines=tuple(sorted(lines, key=lambda line: (attack_rank(line.attack), line.layers))),
    )


def _attack_line(rows: Sequence[Row], columns: Sequence[str], all_seeds: Sequence[Row]) -> AttackLine:
    first = rows[0]
    by_linkage = _group(rows, lambda row: row["linkage"])
    return AttackLine(
        attack=first["attack"],
        layers=_layers(first),
        chosen=first["attack"] != NO_ATTACKER and any(row.get("selected") is True for row in rows),
        votes=_votes(first, all_seeds),
        by_linkage={
            linkage: {row["metric"]: estimate(row) for row in by_linkage[linkage]}
            for linkage in sorted(by_linkage, key=lambda name: rank(LINKAGE_ORDER, name))
        },
        published=tuple(published_row(name, first["prior"], first["attack"]) for name in columns),
    )


def _ap(line: AttackLine) -> float:
    estimates = next(iter(line.by_linkage.values()), {})
    return estimates["ap"].value or 0.0 if "ap" in estimates else 0.0


def _votes(line: Row, all_seeds: Sequence[Row]) -> str:
    """Return ``2 of 3 seeds`` for an attacker that some but not all seeds chose."""
    same = [
        row
        for row in all_seeds
        if isinstance(row["seed"], int)
        and all(row.get(key) == line.get(key) for key in ("prior", "adversary", "attack", "layers"))
    ]
    seeds = {row["seed"] for row in same}
    chosen = {row["seed"] for row in same if row.get("selected")}
    return f"{len(chosen)} of {len(seeds)} seeds" if 0 < len(chosen) < len(seeds) else ""


def _paper_utility(row: Row) -> tuple[tuple[str, str, float], ...]:
    papers = ((name, published_utility(name, row["prior"], row["training"])) for name in comparable(row["dataset"]))
    names = {"AP": "mean_ap", "MAE": "mae"}
    return tuple((name, *pair) for name, pair in papers if pair and names.get(pair[0], pair[0]) == row["metric"])


def _layers(row: Row) -> str:
    layers = row.get("layers")
    return ", ".join(map(str, layers)) if isinstance(layers, list | tuple) else str(layers or "")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    return str(value)


def _group(rows: Sequence[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
