"""What each point of the published planes costs and leaves, for pages about other federations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedprint.reports.numbers.plane import NO_DEFENCE
from fedprint.reports.results.published import Published
from fedprint.reports.wording import csv_text

PLANES = Path("src/fedprint/reports/reference/planes.csv")
COSTS_OF = ("mnist-writers-linked-confirmation", "blog-plane")
"""The published planes whose costs are in :data:`PLANES`."""
_COSTS = {
    "value": "", "lo": "_lo", "hi": "_hi", "chance": "_chance", "n_questions": "_n_questions", "n_users": "_n_users",
    "n_seeds": "_n_seeds",
}  # fmt: skip
"""Columns of a number in planes.csv, behind its name."""


def plane_costs(planes: Sequence[Published]) -> str:
    """Return as CSV what each point of the planes left to the fixed adversary, and the utility that it kept.

    An installed package holds it as ``reference/planes.csv``: audits of other federations show it as what was measured
    here.
    """
    lines = [dict(line) for one in planes for line in _plane_costs(one)]
    return csv_text([lines[0], *(line.values() for line in lines)])


def _plane_costs(one: Published) -> Iterator[Mapping[str, Any]]:
    for point in [{"strategy": NO_DEFENCE}, *one.points()]:
        single, pooled = one.ap(**point)
        use = one.number(metric="normalised_utility", **point) if "strength" in point else None
        line = {"experiment": one.name, "strategy": point["strategy"], "strength": point.get("strength")}
        for name, row in (("ap", single), ("ap_linked", pooled), ("utility", use)):
            for key, ending in _COSTS.items():
                line[f"{name}{ending}"] = None if row is None else row[key]
        yield {**line, "source": one.source(single)}
