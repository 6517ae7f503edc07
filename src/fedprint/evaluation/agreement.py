"""Whether two runs of one experiment measured the same: row by row, to the byte or within intervals."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedprint.evaluation.rows import Row

IGNORED = ("experiment", "config_hash")
"""Columns in which two runs of one experiment may differ: names only."""

MEASURED = ("value", "lo", "hi", "chance", "n_questions", "n_users", "p_chance")
"""Columns with what was measured. All other columns say what a row is about."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The number of rows that are the ``same`` to the byte, and all other rows.

    ``within`` are pairs whose values lie within each other's intervals; ``beyond`` are the other pairs; ``missing``
    are rows of the first run alone, ``added`` of the second alone.
    """

    same: int
    within: tuple[tuple[Row, Row], ...]
    beyond: tuple[tuple[Row, Row], ...]
    missing: tuple[Row, ...]
    added: tuple[Row, ...]

    @property
    def holds(self) -> bool:
        """Whether both measured the same things, and no value lies outside the other's interval."""
        return not (self.beyond or self.missing or self.added)


def agreement(first: Sequence[Row], second: Sequence[Row], ignore: Collection[str] = IGNORED) -> Agreement:
    """Compare rows that are about the same: with equal values in all columns except ``ignore`` and :data:`MEASURED`.

    Several rows about the same are compared in their order. A row without an interval agrees only with an equal value.
    """
    waiting: dict[str, deque[Row]] = defaultdict(deque)
    for row in second:
        waiting[_subject(row, ignore)].append(row)
    same = 0
    missing: list[Row] = []
    within: list[tuple[Row, Row]] = []
    beyond: list[tuple[Row, Row]] = []
    for row in first:
        others = waiting[_subject(row, ignore)]
        if not others:
            missing.append(row)
            continue
        other = others.popleft()
        if _text(row, ignore) == _text(other, ignore):
            same += 1
        else:
            (within if _covers(row, other) and _covers(other, row) else beyond).append((row, other))
    added = [row for rows in waiting.values() for row in rows]
    return Agreement(same=same, within=tuple(within), beyond=tuple(beyond), missing=tuple(missing), added=tuple(added))


def described(row: Row, ignore: Collection[str] = IGNORED) -> str:
    """Return what a row is about, in one line."""
    left_out = {*ignore, *MEASURED, "unit", "direction"}
    return " ".join(f"{name}={value}" for name, value in row.items() if name not in left_out and value is not None)


def _subject(row: Row, ignore: Collection[str]) -> str:
    return _text(row, {*ignore, *MEASURED})


def _text(row: Row, without: Collection[str]) -> str:
    # An empty column may be left out: whether it exists depends on the other rows of its table.
    return json.dumps({k: v for k, v in row.items() if k not in without and v is not None}, sort_keys=True)


def _covers(row: Row, other: Row) -> bool:
    value, lo, hi = other["value"], row["lo"], row["hi"]
    if value is None or lo is None or hi is None:
        return bool(value == row["value"])
    return bool(lo <= value <= hi)
