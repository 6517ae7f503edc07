"""Rows of analyses -> tables: what an analysis varied in front, one column per metric behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedprint.evaluation.rows import COLUMNS, Row
from fedprint.reports.numbers.evaluations import prior_rank
from fedprint.reports.numbers.order import attack_rank, rank
from fedprint.reports.wording import METRIC_TITLES, Estimate, csv_text, estimate, number

UNVARIED = {*COLUMNS, "analysis", "config_hash", "n_seeds", "member", "seconds"} - {
    "attack",
    "layers",
    "linkage",
    "world",
    "adversary",
    "view",
}
"""Columns that are no key of an analysis."""

KEY_TITLES: Mapping[str, str] = {
    "prior_examples": "prior examples per user",
    "training_updates": "updates per user",
    "linked_updates": "linked updates",
    "seen_share": "seen users",
    "set_size": "examples in a set",
    "options": "users",
    "train_bin": "learned from bin",
    "test_bin": "asked about bin",
    "heads": "learned",
    "users": "users are",
    "protected": "users are",
    "versus_attack": "minus",
    "versus_prior": "under",
    "not_covered": "not covered",
    "number": "the number is",
}
VALUE_TITLES: Mapping[tuple[str, str], str] = {
    ("heads", "stl"): "alone",
    ("heads", "mtl"): "together",
    ("users", "known"): "known",
    ("users", "new"): "new",
    ("protected", "True"): "protected",
    ("protected", "False"): "unprotected",
    ("protects", "device"): "a device",
    ("protects", "user"): "a user with both devices",
    ("strength", "any"): "all of them",
    ("linkage", "update"): "one update",
    ("linkage", "device"): "device pooled",
}
METRICS: Mapping[str, str] = {
    **METRIC_TITLES,
    "ap_difference": "difference of AP",
    "matching_ap": "AP over pairs",
    "cross_modal_ap": "AP over pairs",
    "attribute_ap": "attribute: AP",
    "attribute_top1": "attribute: top-1",
    "unseen_ap": "AP of “unseen”",
    "unseen_auroc": "AUROC of “unseen”",
    "mtl_gain": "gain in top-1",
    "mtl_gain_ap": "gain in AP",
    "epsilon": "epsilon",
    "participation_ap": "AP of naming who took part in a round",
    "membership_auc": "membership: AUC",
    "membership_tpr": "membership: found at 5 % false alarms",
    "epsilon_lower": "epsilon, at least",
    "between_clients_variance_change": "V_c, last third of the rounds over the first",
    "update_scale_change": "U_s, last third of the rounds over the first",
}

Cell = Estimate | str | None


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """One condition: ``labels`` say which, ``cells`` hold one number, text or nothing per column."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table for the page and for ``tables/<name>.csv``; ``folded`` ones open on a click.

    The first ``grouped`` labels stand above the lines that share them.
    """

    name: str
    title: str
    note: str
    labels: tuple[str, ...]
    heads: tuple[str, ...]
    lines: tuple[TableLine, ...]
    folded: bool = False
    grouped: int = 0

    @cached_property
    def agreed(self) -> tuple[Mapping[str, Estimate | None], ...]:
        """Per column a number that speaks for all in ``chance`` and in ``counts``, so that the head says them once.

        None where they differ, or where there is only one number.
        """
        return tuple(_agreed([line.cells[column] for line in self.lines]) for column in range(len(self.heads)))


def _agreed(cells: Sequence[Cell]) -> Mapping[str, Estimate | None]:
    numbers = [each for each in cells if isinstance(each, Estimate)]
    said: Mapping[str, set[Any]] = {
        "chance": {number(each.chance, each.unit) for each in numbers},
        "counts": {(each.n_questions, each.n_users, each.n_seeds) for each in numbers},
    }
    return {what: numbers[0] if len(numbers) > 1 and len(values) == 1 else None for what, values in said.items()}


def cell(row: Row | None) -> Estimate | None:
    """Return what a table shows of a row; nothing for None."""
    return None if row is None else estimate(row)


def result_table(
    rows: Sequence[Row], name: str, title: str, note: str = "", *, folded: bool = False, shown: Sequence[str] = ()
) -> ResultTable | None:
    """Return every condition of ``rows`` with its metrics side by side; None without rows.

    Keys that never vary are left out, but for the attack, the prior and those that must be ``shown`` whatever they
    are. Unknown keys become columns of their own.
    """
    if not rows:
        return None
    keys = varied_keys(rows, shown)
    metrics = sorted({row["metric"] for row in rows}, key=lambda metric: rank(tuple(METRICS), metric))
    groups: dict[str, dict[str, Estimate]] = {}
    labels: dict[str, tuple[str, ...]] = {}
    members = list(dict.fromkeys(row.get("member") for row in rows))
    for row in sorted(
        rows, key=lambda row: (members.index(row.get("member")), *(_sortable(key, row.get(key)) for key in keys))
    ):
        place = json.dumps([row.get(key) for key in keys])
        labels[place] = tuple(label(key, row.get(key)) for key in keys)
        groups.setdefault(place, {})[row["metric"]] = estimate(row)
    lines = [
        TableLine(labels=labels[place], cells=tuple(by_metric.get(metric) for metric in metrics))
        for place, by_metric in groups.items()
    ]
    return ResultTable(
        name=name,
        title=title,
        note=note,
        labels=tuple(KEY_TITLES.get(key, key.replace("_", " ")) for key in keys),
        heads=tuple(METRICS.get(metric, metric) for metric in metrics),
        lines=tuple(lines),
        folded=folded,
    )


def varied_keys(rows: Sequence[Row], shown: Sequence[str] = ()) -> list[str]:
    """Return the keys that tell the rows apart, and those ``shown``; member and prior first, the attack last."""
    keys = {key for row in rows for key in row if key not in UNVARIED}
    varied = [key for key in sorted(keys) if len({json.dumps(row.get(key)) for row in rows}) > 1]
    # the tensors of a layer repeat its name, rounds repeat their bin
    hidden = {"layers"} if "layer" in varied or "attack" in varied else set()
    hidden |= {key for key in varied if key.startswith(("train_", "test_")) and not key.endswith("_bin")}
    middle = [key for key in varied if key not in {*hidden, *shown, "attack", "prior"}]
    return [*(["member"] if any("member" in row for row in rows) else []), "prior", *middle, *shown, "attack"]


def label(key: str, value: object) -> str:
    """Return a key's value in words; shares in per cent, nothing for None."""
    if value is None:
        return ""
    if key.endswith("share") and isinstance(value, int | float):
        return f"{100 * value:.0f} %"
    if key == "train_bin" or key == "test_bin":
        return str(int(str(value)) + 1)
    return VALUE_TITLES.get((key, str(value)), f"{value:g}" if isinstance(value, float) else str(value))


def table_csv(table: ResultTable) -> str:
    """Return the table as CSV: per number its value, interval, chance and counts; fractions stay in [0, 1]."""
    parts = ("value", "lo", "hi", "chance", "n_questions", "n_users", "n_seeds")
    lines: list[list[Any]] = [[*table.labels, *(f"{head}: {part}" for head in table.heads for part in parts)]]
    for line in table.lines:
        numbers = [
            getattr(cell, part) if isinstance(cell, Estimate) else (cell if part == "value" else None)
            for cell in line.cells
            for part in parts
        ]
        lines.append([*line.labels, *numbers])
    return csv_text(lines)


def _sortable(key: str, value: object) -> tuple[int, float, str]:
    """Return a sort key for mixed values: priors in reading order, then numbers, then text."""
    if key == "prior":
        return (0, float(prior_rank(str(value))[0]), str(value))
    if key == "attack":
        place, name = attack_rank(str(value))
        return (0, float(place), name)
    if value is None:
        return (0, 0.0, "")
    if key == "linkage":
        return (0, float(value != "update"), str(value))
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (2, 0.0, str(value))
