"""Linked updates on a sweep's page: AP by how many updates of a device the adversary links, and how firm that is."""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.evaluation.rows import Row
from fedprint.evaluation.tradeoffs.planes import over_seeds
from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.reports.figures.drawing import Drawing
from fedprint.reports.figures.plane import draw_linked
from fedprint.reports.numbers.plane import Entry, measured
from fedprint.reports.tables.analyses import ResultTable, TableLine, cell
from fedprint.reports.wording import LOWER_BOUND, still_rises
from fedprint.types import Linkage

CHOSEN, ANY = "chosen", "any attack"
LINKAGES: tuple[Linkage, ...] = ("update", "device")
KEPT = 0.9
"""The figure shows each strategy's strongest strength that keeps this share of the utility."""


def linked_table(entries: Sequence[Entry], headline: str) -> ResultTable | None:
    """Return AP by linked updates, of the adversary ``headline`` and at most; None where it was not measured."""
    counts = linked_counts(entries)
    if not counts:
        return None
    return ResultTable(
        name="linked",
        title="Every strength: AP by linked updates",
        note=f"AP from so many updates of one device. “{CHOSEN}”: the {headline} adversary, fixed in advance, with the "
        f"attack that it chose on prior data. “{ANY}”: the largest of any adversary and attack, those on side channels "
        "among them; the largest of many is an upper estimate. Intervals (95 %) over seeds and users.",
        labels=("strategy", "strength"),
        heads=tuple(f"{reading}: {count}" for reading in (CHOSEN, ANY) for count in counts),
        lines=tuple(
            TableLine(
                labels=(entry.label, entry.amount),
                cells=tuple(cell(linked_row(entry, count, who)) for who in (headline, None) for count in counts),
            )
            for entry in measured(entries)
        ),
    )


def effort_table(entries: Sequence[Entry]) -> ResultTable | None:
    """Return what the last doubling of the adversary's effort gained; None where it trains nothing off line."""
    lines = [
        TableLine(
            labels=(entry.label, entry.amount),
            cells=(*map(cell, rows), _so_the_ap_is(entry, rows)),
        )
        for entry in measured(entries)
        if any(rows := [effort_row(entry, linkage) for linkage in LINKAGES])
    ]
    if not lines:
        return None
    return ResultTable(
        name="effort",
        title="Every strength: what more effort would find",
        note="AP with all shadow devices minus AP with those of every other global model, paired over the users of "
        f"each seed: the gain of the last doubling. From {100 * LOWER_BOUND:.0f} point on, the AP is a lower bound; it "
        "is settled where the whole interval of every gain lies below that, and else undecided.",
        labels=("strategy", "strength"),
        heads=("gain, one update", "gain, all updates of a device", "so the AP is"),
        lines=tuple(lines),
        folded=True,
    )


def _so_the_ap_is(entry: Entry, gains: Sequence[Row | None]) -> str:
    if is_lower_bound(entry):
        return "lower bound"
    return "settled" if all(gain is not None and gain["hi"] < LOWER_BOUND for gain in gains) else "undecided"


def effort_row(entry: Entry, linkage: Linkage) -> Row | None:
    """Return the gain of the last doubling for the chosen attack, over seeds; None where a seed has none."""
    wanted = {"analysis": "effort", "metric": "ap_difference", "linkage": linkage, "selected": True}
    rows = [
        {**row, "layers": None}
        for point in entry.points
        for row in point.analyses
        if all(row.get(key) == value for key, value in wanted.items())
    ]
    return over_seeds(rows) if rows and len(rows) == len(entry.points) else None


def is_lower_bound(entry: Entry) -> bool:
    """Return whether the last doubling gained a point or more, of one update or of all."""
    return any(still_rises(row["value"]) for linkage in LINKAGES if (row := effort_row(entry, linkage)) is not None)


def linked_drawings(entries: Sequence[Entry], headline: str) -> list[Drawing]:
    """Return the figure of AP over linked updates, where there are several numbers of these."""
    counts = linked_counts(entries)
    if len(counts) < 2:
        return []
    curves = {
        entry.name: [(count, row) for count in counts if (row := linked_row(entry, count, headline))]
        for entry in _strongest_useful(entries, headline)
    }
    return [draw_linked(curves, KEPT, headline)]


def linked_counts(entries: Sequence[Entry]) -> tuple[int, ...]:
    """Return the numbers of linked updates that were measured in every seed without a defence, ascending.

    Where devices are drawn, half of them may have sent so many in one seed and not in another.
    """
    by_seed = [
        {int(row["linked_updates"]) for row in point.analyses if row["analysis"] == "linked"}
        for point in entries[0].points
    ]
    return tuple(sorted(set.intersection(*by_seed))) if by_seed else ()


def linked_row(entry: Entry, count: int, adversary: str | None) -> Row | None:
    """Return the AP of an adversary's chosen attack, or (None) the largest of any in each seed, over seeds.

    None where a seed has no such number.
    """
    rows = [row for point in entry.points if (row := _linked(point, count, adversary)) is not None]
    return over_seeds(rows) if rows and len(rows) == len(entry.points) else None


def _linked(point: Point, count: int, adversary: str | None) -> Row | None:
    wanted = {"analysis": "linked", "metric": "ap", "linked_updates": count}
    rows = [row for row in point.analyses if all(row.get(key) == value for key, value in wanted.items())]
    if adversary is not None:
        chosen = [row for row in rows if row["selected"]]
        rows = [row for row in chosen if row["adversary"] == adversary] or chosen  # without a defence there may be one
    best = max(rows, key=lambda row: float(row["value"]), default=None)
    reading = ANY if adversary is None else CHOSEN
    return best and {**best, "attack": reading, "layers": None, "adversary": None, "selected": None}


def _strongest_useful(entries: Sequence[Entry], headline: str) -> list[Entry]:
    plain, known = entries[0], measured(entries)
    shown = [plain]
    for strategy in dict.fromkeys(entry.strategy for entry in known if entry.strategy):
        useful = [e for e in known if e.strategy == strategy and e.utility(plain)["value"] >= KEPT]
        if useful:
            shown.append(min(useful, key=lambda e: float(e.attack(headline)["value"])))
    return shown
