"""Points of a published plane, read back from its measurements: what git holds of it is enough for the papers' claims.

Values of single users are not published, so two points cannot be paired: numbers that need that are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedprint.evaluation.rows import POOLED, Row
from fedprint.evaluation.tradeoffs.tradeoff import LINKAGE
from fedprint.reports.numbers.plane import NO_DEFENCE, Entry
from fedprint.types import Linkage


@dataclass(frozen=True, kw_only=True)
class PublishedEntry(Entry):
    """A point whose numbers are ``rows`` over all seeds; it has no ``points``."""

    points: tuple[()] = ()
    rows: tuple[Row, ...]

    @property
    def is_measured(self) -> bool:
        """Always true: a point without a number has no row."""
        return True

    def attack(self, name: str) -> Row:
        """Return the AP of an adversary."""
        return self._number(metric="ap", linkage=LINKAGE, adversary=name)

    def utility(self, plain: Entry) -> Row:
        """Return the utility normalised to no defence."""
        return self._number(metric="normalised_utility")

    def reduction(self, plain: Entry, name: str) -> Row | None:
        """Return the share of the undefended AP that is gone."""
        return self._number(metric="ap_reduction", linkage=LINKAGE, adversary=name)

    def less_than(self, other: Entry, name: str, linkage: Linkage = LINKAGE) -> Row | None:
        """Return None: it is paired over users."""
        return None

    def more_than(self, other: Entry, name: str) -> Row | None:
        """Return None: it is paired over users."""
        return None

    def lost(self, other: Entry) -> Row | None:
        """Return None: it is paired over users."""
        return None

    def missed(self, weaker: str, stronger: str) -> Row | None:
        """Return None: it is paired over users."""
        return None

    def _number(self, **wanted: Any) -> Row:
        """Return the only row with these values."""
        (found,) = [row for row in self.rows if all(row.get(key) == value for key, value in wanted.items())]
        return found


def published_entries(rows: Sequence[Row]) -> list[Entry]:
    """Return the points of a plane's measurements, the undefended one first.

    They are of chosen attackers on single updates, over all seeds or of the only one.
    """
    pooled = [row for row in rows if row["seed"] == POOLED] or list(rows)
    plain = [row for row in pooled if row.get("analysis") is None and row["world"] == "closed"]
    chosen = [row for row in plain if row.get("selected") is not False]
    keys = dict.fromkeys((row["strategy"], row["strength"]) for row in chosen)
    return [
        PublishedEntry(
            strategy=None if strategy == NO_DEFENCE else strategy,
            strength=strength,
            rows=tuple(row for row in chosen if (row["strategy"], row["strength"]) == (strategy, strength)),
        )
        for strategy, strength in sorted(keys, key=lambda key: key[0] != NO_DEFENCE)
    ]
