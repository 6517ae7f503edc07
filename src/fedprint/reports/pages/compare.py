"""Two reports side by side: every condition that both measured, with the difference and its interval."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprint.evaluation.rows import Row, read_measurements
from fedprint.reports.numbers.evaluations import final_rows, prior_rank
from fedprint.reports.numbers.order import attack_rank
from fedprint.reports.pages.html import Page, read_summary, write_page
from fedprint.reports.wording import Estimate, csv_text, estimate
from fedprint.types import FedprintError

CHOSEN = "chosen attacker"
"""The attack of a line that compares the attackers each report chose, whatever their names."""

SHOWN = ("ap", "top1", "top5", "accuracy", "mean_ap", "top5_accuracy", "mae", "mae_gain_over_median")
"""Metrics of the page; the ratios of AP follow from it and stay in the CSV."""

_KEY = ("prior", "world", "adversary", "view", "training", "linkage", "attack", "metric")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One condition in both reports. ``lo`` to ``hi`` is the interval of ``b - a`` (None when a side has none).

    Square-and-add from both intervals (Newcombe 1998), which treats the reports as independent; if they share users
    and the effect is the same for all of them, it is wider than need be, never narrower.
    """

    key: Mapping[str, str | None]
    a: Estimate
    b: Estimate
    difference: float | None
    lo: float | None
    hi: float | None

    @property
    def clear(self) -> bool:
        """Return whether the interval of the difference excludes 0."""
        return self.lo is not None and self.hi is not None and (self.lo > 0 or self.hi < 0)


def write_comparison(a: Path, b: Path, out: Path) -> Path:
    """Write ``out/index.html`` and ``out/comparison.csv`` from two folders of results and return the page's path.

    A folder is that of a report or, as in a fresh clone, of an experiment of which only the measurements are published.

    Conditions match by prior, world, adversary, view, training, linkage, attack and metric: data set and defence are
    what one compares. Without a defence all adversaries know the same, so that such rows match those of any. Equal
    input gives equal bytes.

    Raises:
        FedprintError: a folder holds no report, or the two have no condition in common.
    """
    summaries = [_single(Path(folder)) for folder in (a, b)]
    rows = [final_rows(read_measurements(Path(folder) / "measurements.jsonl")) for folder in (a, b)]
    adversaries = {row["adversary"] for row in [*rows[0], *rows[1]]}
    tables = [comparable_rows(each, adversaries) for each in rows]
    lines = differences(*tables)
    if not lines:
        raise FedprintError(f"{a} and {b} have no condition in common; choose reports that share a prior and attack")
    shown = [line for line in lines if line.key["metric"] in SHOWN]
    unmatched = [sorted({_name(key) for key in one.keys() - other.keys()}) for one, other in (tables, tables[::-1])]
    page = Page(
        template="compare",
        files={"comparison.csv": _csv(lines)},
        values={"summaries": summaries, "lines": shown, "unmatched": unmatched},
    )
    write_page(page, Path(out))
    return Path(out) / "index.html"


def _single(folder: Path) -> dict[str, Any]:
    """Return the summary of one experiment's report; a suite has several."""
    alone = not (folder / "summary.json").exists() and (folder / "measurements.jsonl").exists()
    summary = _published(folder) if alone else read_summary(folder)
    if "suite" in summary:
        names = ", ".join(f"{summary['suite']}/{member['name']}" for member in summary["members"])
        raise FedprintError(f"{folder} is the report of a suite; compare its members: {names}")
    if "plane" in summary:
        raise FedprintError(f"{folder} is the report of a sweep; compare reports of single experiments")
    return summary


def _published(folder: Path) -> dict[str, Any]:
    """Return what a page says of an experiment of which only the measurements are here."""
    rows = read_measurements(folder / "measurements.jsonl")
    if any("member" in row or "strategy" in row for row in rows):
        raise FedprintError(f"{folder} holds measurements of several experiments; compare them with --exact")
    names = ("dataset", "config_hash")
    facts = {name: ", ".join(sorted({str(row[name]) for row in rows if row.get(name)})) for name in names}
    verdict = [f"Published measurements; the report is not on this machine (fedprint pull {folder.name})."]
    return {
        "experiment": folder.name, "title": folder.name, "verdict": verdict, "fast": False, "arguments": "", **facts
    }  # fmt: skip


def comparable_rows(final: Sequence[Row], adversaries: Collection[str]) -> dict[tuple[str | None, ...], Row]:
    """Return final rows by the condition they match on, and the chosen attackers' once more as :data:`CHOSEN`.

    A row without a defence stands under each of the ``adversaries``.
    """
    chosen = [{**row, "attack": CHOSEN} for row in final if row.get("selected") is True]
    return {
        tuple({**row, "adversary": adversary}.get(name) for name in _KEY): row
        for row in [*final, *chosen]
        for adversary in (adversaries if row["defence"] == "none" else [row["adversary"]])
    }


def differences(
    a: Mapping[tuple[str | None, ...], Row], b: Mapping[tuple[str | None, ...], Row]
) -> tuple[Difference, ...]:
    """Return the matching conditions in reading order: the chosen attackers first, then by attack, then utility."""
    lines = [_difference(key, estimate(a[key]), estimate(b[key])) for key in a.keys() & b.keys()]
    return tuple(sorted(lines, key=_order))


def _difference(key: tuple[str | None, ...], a: Estimate, b: Estimate) -> Difference:
    lo = hi = gap = None
    if a.value is not None and b.value is not None:
        gap = b.value - a.value
        if a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None:
            lo = gap - math.hypot(b.value - b.lo, a.hi - a.value)
            hi = gap + math.hypot(b.hi - b.value, a.value - a.lo)
    return Difference(key=dict(zip(_KEY, key, strict=True)), a=a, b=b, difference=gap, lo=lo, hi=hi)


def _order(line: Difference) -> tuple[Any, ...]:
    key = line.key
    attack, metric = key["attack"] or "", str(key["metric"])
    place = SHOWN.index(metric) if metric in SHOWN else len(SHOWN)
    rest = tuple(str(key[name]) for name in _KEY)
    by_kind = (key["attack"] is None, attack != CHOSEN, prior_rank(str(key["prior"])), attack_rank(attack))
    return (*by_kind, key["linkage"] != "update", place, rest)


def _csv(lines: Sequence[Difference]) -> str:
    names = ("value", "lo", "hi", "chance", "n_questions", "n_users", "n_seeds")
    table: list[list[Any]] = [
        [*_KEY, "unit", *(f"{name}_{side}" for side in "ab" for name in names), "difference", "lo", "hi"]
    ]
    for line in lines:
        sides = [getattr(side, name) for side in (line.a, line.b) for name in names]
        table.append([*line.key.values(), line.a.unit, *sides, line.difference, line.lo, line.hi])
    return csv_text(table)


def _name(key: tuple[str | None, ...]) -> str:
    values = dict(zip(_KEY, key, strict=True))
    return f"{values['prior']}: {values['attack'] or values['training']}"
