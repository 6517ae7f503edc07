"""Linked updates on a sweep's page: AP of each point by how many updates of a device the adversary links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedprint.evaluation.planes import over_seeds
from fedprint.evaluation.rows import Row
from fedprint.evaluation.tradeoff import Point
from fedprint.reports.figures.drawing import Drawing
from fedprint.reports.figures.plane import draw_linked
from fedprint.reports.numbers.plane import Entry, measured
from fedprint.reports.tables.analyses import ResultTable, TableLine, cell

CHOSEN, ANY = "chosen", "any attack"
READINGS: Mapping[str, bool] = {CHOSEN: True, ANY: False}
"""Which attacks count, in each seed the strongest of them: those chosen on prior data, or all."""
KEPT = 0.9
"""The figure shows each strategy's strongest strength that keeps this share of the utility."""


def linked_table(entries: Sequence[Entry]) -> ResultTable | None:
    """Return AP by linked updates; None where no point was measured by them."""
    counts = linked_counts(entries)
    if not counts:
        return None
    return ResultTable(
        name="linked",
        title="Every strength: AP by linked updates",
        note="AP of the better adversary in each seed, from so many updates of one device (their mean "
        f"log-probability). “{CHOSEN}”: with the attack chosen on prior data. “{ANY}”: the largest of all attacks, "
        "those on side channels among them; the largest of many is an upper estimate. Intervals (95 %) over seeds and "
        "users.",
        labels=("strategy", "strength"),
        heads=tuple(f"{reading}: {count}" for reading in READINGS for count in counts),
        lines=tuple(
            TableLine(
                labels=(entry.label, entry.amount),
                cells=tuple(cell(linked_row(entry, count, chosen)) for chosen in READINGS.values() for count in counts),
            )
            for entry in measured(entries)
        ),
    )


def linked_drawings(entries: Sequence[Entry]) -> list[Drawing]:
    """Return the figure of AP over linked updates, where there are several numbers of these."""
    counts = linked_counts(entries)
    if len(counts) < 2:
        return []
    curves = {
        entry.name: [(count, row) for count in counts if (row := linked_row(entry, count, chosen=True))]
        for entry in _strongest_useful(entries)
    }
    return [draw_linked(curves, KEPT)]


def linked_counts(entries: Sequence[Entry]) -> tuple[int, ...]:
    """Return the numbers of linked updates that were measured, ascending."""
    rows = (row for entry in measured(entries) for point in entry.points for row in point.analyses)
    return tuple(sorted({int(row["linked_updates"]) for row in rows if row["analysis"] == "linked"}))


def linked_row(entry: Entry, count: int, chosen: bool) -> Row | None:
    """Return the largest AP of any adversary in each seed, over seeds; None where a seed has none."""
    rows = [row for point in entry.points if (row := _strongest(point, count, chosen)) is not None]
    return over_seeds(rows) if rows and len(rows) == len(entry.points) else None


def _strongest(point: Point, count: int, chosen: bool) -> Row | None:
    wanted = {"analysis": "linked", "metric": "ap", "linked_updates": count}
    rows = [row for row in point.analyses if all(row.get(key) == value for key, value in wanted.items())]
    counted = [row for row in rows if row["selected"] or not chosen]
    best = max(counted, key=lambda row: float(row["value"]), default=None)
    reading = CHOSEN if chosen else ANY
    return best and {**best, "attack": reading, "layers": None, "adversary": None, "selected": None}


def _strongest_useful(entries: Sequence[Entry]) -> list[Entry]:
    plain, known = entries[0], measured(entries)
    shown = [plain]
    for strategy in dict.fromkeys(entry.strategy for entry in known if entry.strategy):
        useful = [e for e in known if e.strategy == strategy and e.utility(plain)["value"] >= KEPT]
        if useful:
            shown.append(min(useful, key=lambda e: float(e.attack(e.adversary("best"))["value"])))
    return shown
