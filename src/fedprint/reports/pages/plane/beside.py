"""Confirmation users beside development users: AP under every point, here and in a published run, and the difference.

The two groups have no user in common, so their intervals are independent and the difference is unpaired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedprint.evaluation.rows import NUMBERS, POOLED, Row
from fedprint.evaluation.tradeoffs.planes import over_seeds
from fedprint.reports.claims.evidence import unpaired
from fedprint.reports.numbers.plane import Entry, measured
from fedprint.reports.pages.plane.linked import linked_counts, linked_row
from fedprint.reports.tables.analyses import ResultTable, TableLine, cell
from fedprint.reports.wording import people

OWN = "your"
"""Users of whom configs/users.yaml says nothing."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The measurements of a published plane, whose ``users`` are others than the page's.

    Where there are none to show, ``hint`` says why.
    """

    name: str
    users: str = ""
    rows: Sequence[Row] = ()
    hint: str | None = None

    def ap(self, entry: Entry, count: int, adversary: str) -> Row | None:
        """Return the AP of an adversary's chosen attack from ``count`` updates, over seeds; None if not published."""
        wanted: Row = {"metric": "ap", "selected": True, "strategy": entry.label, "strength": entry.strength}
        several, single = {"analysis": "linked", "linked_updates": count}, {"analysis": None, "linkage": "update"}
        wanted |= several if count > 1 else single
        rows = [row for row in self.rows if row["seed"] != POOLED and row["world"] == "closed"]
        rows = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
        rows = [row for row in rows if row["adversary"] == adversary] or rows
        numbers = [{key: row.get(key) for key in (*NUMBERS, "metric", "unit", "seed")} for row in rows]
        known = len({row["seed"] for row in numbers}) == len(numbers)
        return over_seeds(numbers) if numbers and known else None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """AP of one point from ``updates`` of a device: here, in the other run, and the first minus the second."""

    updates: int
    here: Row
    other: Row
    difference: Row


def pairs_of(beside: Beside, entries: Sequence[Entry], entry: Entry, adversary: str) -> dict[int, Pair]:
    """Return by number of linked updates, 1 and the largest, what both runs have measured."""
    found = {}
    for count in _counts(entries):
        here = entry.attack(adversary) if count == 1 else linked_row(entry, count, adversary)
        other = beside.ap(entry, count, adversary)
        if here is not None and other is not None:
            found[count] = Pair(updates=count, here=here, other=other, difference=unpaired(here, other))
    return found


def pairs_json(beside: Beside | None, entries: Sequence[Entry], entry: Entry, adversary: str) -> list[dict[str, Any]]:
    """Return the pairs of a point as data."""
    pairs = pairs_of(beside, entries, entry, adversary).values() if beside else ()
    names = ("value", "lo", "hi", "n_users", "n_seeds")
    sides = ("here", "other", "difference")
    return [
        {"updates": pair.updates, **{side: {n: getattr(pair, side).get(n) for n in names} for side in sides}}
        for pair in pairs
    ]


def beside_table(beside: Beside | None, entries: Sequence[Entry], adversary: str, users: str) -> ResultTable | None:
    """Return the AP of the headline's adversary on both groups of users; None where no point was measured on both."""
    if beside is None:
        return None
    found = {entry.name: (entry, pairs_of(beside, entries, entry, adversary)) for entry in measured(entries)}
    every = [pair for _, pairs in found.values() for pair in pairs.values()]
    if not every:
        return None
    here, other = (max(getattr(pair, side)["n_users"] for pair in every) for side in ("here", "other"))
    unequal = (
        "" if here == other else f" AP falls with the number of users: here {people(here)}, there {people(other)}."
    )
    counts = _counts(entries)
    return ResultTable(
        name="beside",
        title=f"Every strength: {users} users beside {beside.users} users",
        note=f"AP of the {adversary} adversary, fixed in advance, with the attack that it chose on prior data. The "
        f"{beside.users} users are those of the published run {beside.name}. The difference is {users} minus "
        f"{beside.users}; no user is in both, so it is unpaired (Newcombe 1998). Intervals (95 %) over seeds and "
        f"users.{unequal}",
        labels=("strategy", "strength"),
        heads=tuple(f"{_over(count)}: {what}" for count in counts for what in (users, beside.users, "difference")),
        lines=tuple(
            TableLine(
                labels=(entry.label, entry.amount),
                cells=tuple(cell(row) for count in counts for row in _rows(pairs.get(count))),
            )
            for entry, pairs in found.values()
        ),
    )


def _counts(entries: Sequence[Entry]) -> tuple[int, ...]:
    return tuple(sorted({1, *linked_counts(entries)[-1:]}))


def _over(count: int) -> str:
    return "one update" if count == 1 else f"{count} linked updates"


def _rows(pair: Pair | None) -> tuple[Row | None, ...]:
    return (pair.here, pair.other, pair.difference) if pair else (None, None, None)
