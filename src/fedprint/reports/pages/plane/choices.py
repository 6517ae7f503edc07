"""Users who choose their own strength on a sweep's page: how well those who protect themselves are hidden."""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.evaluation.rows import Row
from fedprint.evaluation.tradeoffs.planes import over_seeds
from fedprint.reports.numbers.evaluations import CHOSEN
from fedprint.reports.numbers.plane import Entry, measured
from fedprint.reports.tables.analyses import ResultTable, TableLine, cell

KINDS = {True: "protected", False: "not protected"}


def choices_table(entries: Sequence[Entry]) -> ResultTable | None:
    """Return the AP of protected and of unprotected users apart; None where nobody had a choice."""
    lines = [
        TableLine(
            labels=(entry.name, row["adversary"], row["view"]),
            cells=tuple(cell(recognised(entry, kind)) for kind in KINDS),
        )
        for entry in measured(entries)
        if (row := recognised(entry, True) or recognised(entry, False))
    ]
    if not lines:
        return None
    return ResultTable(
        name="choices",
        title="Users who chose their own strength",
        note="Each user drew a strength of its own, 0 among them. AP of single updates by the attacker chosen on prior "
        "data, over the users of each kind, who are ranked among all. The defence of some changes the model that all "
        "train: compare with the line without a defence above.",
        labels=("strategy and strength", "adversary", "view"),
        heads=tuple(f"{kind}: AP" for kind in KINDS.values()),
        lines=tuple(lines),
    )


def recognised(entry: Entry, protected: bool) -> Row | None:
    """Return the AP of single updates of those users who protect themselves, or do not, pooled over seeds."""
    wanted = {"analysis": "strengths", "strength": "any", "protected": protected, "metric": "ap", "linkage": "update"}
    rows = [
        {**row, "attack": CHOSEN, "layers": None}
        for point in entry.points
        for row in point.analyses
        if all(row.get(key) == value for key, value in wanted.items())
    ]
    return over_seeds(rows) if rows else None
