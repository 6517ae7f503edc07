"""Reading the rows of an inversion experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprint.evaluation.rows import Row

DEFENCES = ("dp", "ppdl_0.05", "ppdl_0.3", "spn")
"""In the order of the papers' tables."""

MAIN, BEST = "main", "assignment"
PUBLISHED: Mapping[str, str] = {"cifar10": "cifar10", "mnist_writers": "mnist"}
"""Our data set -> that of the papers' tables; Fashion-MNIST is not among them."""


@dataclass(frozen=True, kw_only=True)
class InversionHead:
    """What holds for every number of the page. ``attacks`` are (attack, network, batches)."""

    name: str
    title: str
    dataset: str
    adversaries: tuple[str, ...]
    attacks: tuple[tuple[str, str, tuple[int, ...]], ...]
    images: int
    strengths: Mapping[str, int]
    fast: bool
    config_hash: str

    @property
    def headline(self) -> str:
        """The adversary who knows most."""
        return self.adversaries[-1]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One attacked image: where, the two numbers of its region, and both pictures (c, h, w), uint8.

    ``ratio`` is |B| / |E_B|, infinite without a perturbation; ``error`` the relative error in the best assignment.
    """

    attack: str
    batch: int
    adversary: str
    defence: str
    variant: str
    strength: float
    ratio: float
    error: float
    truth: NDArray[np.uint8]
    found: NDArray[np.uint8]


def rows_where(rows: Sequence[Row], **keys: Any) -> list[Row]:
    """Return the rows with these values; a key that a row does not have counts as None."""
    return [row for row in rows if all(row.get(key) == value for key, value in keys.items())]


def row_where(rows: Sequence[Row], **keys: Any) -> Row | None:
    """Return the only row with these values, None without one."""
    found = rows_where(rows, **keys)
    return found[0] if len(found) == 1 else None


def numbers(row: Row | None, digits: int = 2, factor: float = 1.0) -> str:
    """Return ``0.57 [0.50, 0.66]``; a dash for None, for an end that is not finite too."""
    if row is None or row["value"] is None:
        return "–"
    shown = [_number(row[end], digits, factor) for end in ("value", "lo", "hi")]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]"


def percent(row: Row | None) -> str:
    """Return a fraction as ``62 % [41, 80]``."""
    if row is None or row["value"] is None:
        return "–"
    return f"{100 * row['value']:.0f} % [{_number(row['lo'], 0, 100)}, {_number(row['hi'], 0, 100)}]"


def scored(rows: Sequence[Row], metric: str, attack: str, batch: int, adversary: str) -> dict[str, Row]:
    """Return a CAP score of the papers' grid by defence: best assignment, participants."""
    kind: dict[str, Any] = {"level": "participant"} if metric == "cap_tracing" else {"matching": BEST}
    place = {"attack": attack, "attack_batch": batch, "adversary": adversary, "variant": MAIN}
    found = rows_where(rows, metric=metric, **place, **kind)
    return {str(row["defence"]): row for row in found}


def places(head: InversionHead) -> Iterator[tuple[str, str, int, str]]:
    """Yield attack, network, batch and adversary."""
    for attack, network, batches in head.attacks:
        for batch in batches:
            for adversary in head.adversaries:
                yield attack, network, batch, adversary


def named(row: Row) -> str:
    """Return the mechanism, with its variant where it is an ablation."""
    return str(row["defence"]) if row["variant"] == MAIN else f"{row['defence']} ({row['variant']})"


def _number(value: float | None, digits: int, factor: float) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{factor * value:.{digits}f}"
