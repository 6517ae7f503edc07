"""Utility on a sweep's page: how much of what private data add a defence keeps, and for whom."""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.reports.numbers.plane import Entry, decides, measured, public_entry
from fedprint.reports.tables.analyses import ResultTable, TableLine, cell
from fedprint.reports.wording import shown

COLUMNS = ("utility_lost", "private_share")


def utility_table(entries: Sequence[Entry]) -> ResultTable | None:
    """Return each point's share of what private data add; None where public data alone were not swept."""
    plain, public = entries[0], public_entry(entries)
    if public is None or not (whole := plain.private(plain, public)):
        return None
    gain = whole["private_gain"]
    known = f"Private data add {shown(gain)} to the utility of public data alone ({public.name})"
    if not decides(gain):
        known += ": not discriminating, so only the absolute loss says what a defence costs here"
    return ResultTable(
        name="private-utility",
        title="Every strength: what private data decide",
        note=f"{known}. “Kept” is the share of that gain which a defence keeps: 1 is as useful as no defence, 0 no "
        "more than public data. All differences are paired over the test users of each seed. The last column is the "
        "utility of the tenth of the users with the least, without an interval within a seed.",
        labels=("strategy", "strength"),
        heads=("utility lost", "kept", "worst tenth of users"),
        lines=tuple(
            TableLine(
                labels=(entry.label, entry.amount),
                cells=(*(cell(entry.private(plain, public).get(name)) for name in COLUMNS), cell(entry.worst())),
            )
            for entry in measured(entries)
        ),
    )
