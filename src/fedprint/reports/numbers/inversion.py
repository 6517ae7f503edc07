"""Reading the rows of an inversion experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprint.evaluation.rows import Row
from fedprint.types import Doubles, Floats, Ints

DEFENCES = ("dp", "ppdl_0.05", "ppdl_0.3", "spn")
"""In the order of the papers' tables."""

MAIN, BEST = "main", "assignment"
ALIGNMENT = "alignment"
"""The ``attack`` of rows that need no reconstruction: an image's own gradient beside what was sent."""

LOSS = "loss"
"""That of rows on how far an image's loss falls along what was sent."""

LIRA = "lira"
"""That of likelihood ratios, whose pairs were asked about one by one."""

DRAWN = "drawn"
"""The ``pairs`` of these rows, and of the others' on the same pairs; rows over all pairs have none."""

AGAINST = "gradient"
"""What updates of local training are set ``against``: the same attack on one gradient of the same images."""

RAW: Mapping[str, str] = {"matching": BEST, "pixels": "raw"}
"""The keys of the papers' relative error: images as the search left them, in the best assignment (papers.md 4.1)."""

CUT: Mapping[str, str] = {"matching": BEST, "pixels": "clipped"}
"""Those of ours, which cuts pixels to [0, 1] as any adversary would."""

GRADIENT: Mapping[str, str] = {"matching": BEST, "labels": "gradient"}
"""The keys of labels that come from the last layer."""

IMAGE: Mapping[str, str] = {"matching": BEST, "labels": "image"}
"""Those of labels that a trained model reads from the reconstructed images."""

READING: Mapping[str, Mapping[str, str]] = {
    "cap_reconstruction": CUT,
    "cap_membership": GRADIENT,
    "cap_tracing": {"level": "participant"},
}
"""CAP score -> the keys of its reading in headlines and conclusions. Raw pixels have no upper end: a search that an
unexpected perturbation leads astray scores as protection without bound, and no adversary would show such an image."""

PAPERS = "deep-leakage"
"""The variant of an attack that is the papers' own: patterned start, labels found with the image (spn, 4.1)."""


@dataclass(frozen=True, kw_only=True)
class Other:
    """An attacker beside that of headlines: its ``variant``, the attack it varies, where, and what it may know.

    ``local_steps`` are those of the updates that it attacks, None for gradients.
    """

    variant: str
    attack: str
    network: str
    batches: tuple[int, ...]
    adversaries: tuple[str, ...]
    local_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class InversionHead:
    """What holds for every number of the page.

    ``attacks`` are (attack, network, batches) of headlines; ``others`` stand beside them in tables. ``participants`` of
    CAP's tracing; ``failures`` says what could not be computed, and why.
    """

    name: str
    title: str
    dataset: str
    adversaries: tuple[str, ...]
    attacks: tuple[tuple[str, str, tuple[int, ...]], ...]
    images: int
    strengths: Mapping[str, int]
    fast: bool
    config_hash: str
    participants: int = 2
    others: tuple[Other, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The adversary who knows most."""
        return self.adversaries[-1]


def views(head: InversionHead, rows: Sequence[Row]) -> Iterator[tuple[str, InversionHead, list[Row]]]:
    """Yield each attacker's variant, first that of headlines, with its part of the head and of the rows.

    Rows that no attacker has made, accuracies for one, are in every part.
    """
    yield MAIN, replace(head, others=()), of_variant(rows, MAIN)
    for other in head.others:
        place = (other.attack, other.network, other.batches)
        own = replace(head, attacks=(place,), adversaries=other.adversaries, others=())
        yield other.variant, own, of_variant(rows, other.variant)


def of_variant(rows: Sequence[Row], variant: str) -> list[Row]:
    """Return the rows of an attacker, and those that none has made, of single gradients."""
    return [row for row in rows if row.get("attack_variant") == variant or _of_gradients(row)]


def _of_gradients(row: Row) -> bool:
    return row.get("attack_variant") is None and row.get("local_steps") is None


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Quantiles at ``levels`` of the entries of B (``gradient``) and of E_B (``added``) by layer, of a secret head."""

    network: str
    batch: int
    strength: float
    gradients: int
    levels: tuple[float, ...]
    quantiles: Mapping[str, Mapping[str, Sequence[float]]]


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
    reconstructed: NDArray[np.uint8]


STRAYED = 0.05
"""How much an error must have risen again for a search to have left the image: a quarter of what counts as a leak."""


@dataclass(frozen=True, kw_only=True)
class Trail:
    """How the searches of one place went: the objective ``values`` (s, v) of v gradients after ``evaluations`` (s,).

    ``errors`` (s, n) of their images at the same times, best assigned and cut to [0, 1].
    """

    attack: str
    batch: int
    adversary: str
    defence: str
    strength: float
    evaluations: Ints
    values: Floats
    errors: Doubles

    @property
    def strays(self) -> bool:
        """Whether the search first approached: its median error ends more than :data:`STRAYED` above its lowest."""
        course = np.median(self.errors, axis=1)
        return bool(course[-1] > course.min() + STRAYED)


def rows_where(rows: Sequence[Row], **keys: Any) -> list[Row]:
    """Return the rows with these values; a key that a row does not have counts as None."""
    return [row for row in rows if all(row.get(key) == value for key, value in keys.items())]


def row_where(rows: Sequence[Row], **keys: Any) -> Row | None:
    """Return the only row with these values, None without one."""
    fitting = rows_where(rows, **keys)
    return fitting[0] if len(fitting) == 1 else None


def scored(
    rows: Sequence[Row],
    metric: str,
    attack: str,
    batch: int,
    adversary: str,
    reading: Mapping[str, str] | None = None,
) -> dict[str, Row]:
    """Return a CAP score of the papers' grid by defence, in the papers' reading unless another is given."""
    keys = READING[metric] if reading is None else reading
    place = {"attack": attack, "attack_batch": batch, "adversary": adversary, "variant": MAIN}
    caps = rows_where(rows, metric=metric, **place, **keys)
    return {str(row["defence"]): row for row in caps}


def places(head: InversionHead) -> Iterator[tuple[str, str, int, str]]:
    """Yield attack, network, batch and adversary."""
    for attack, network, batches in head.attacks:
        for batch in batches:
            for adversary in head.adversaries:
                yield attack, network, batch, adversary


def attacked(head: InversionHead, rows: Sequence[Row]) -> Iterator[tuple[str, list[Row], tuple[str, str, int, str]]]:
    """Yield, for every attacker and each of its places, the variant, its rows, and the place."""
    for variant, part, own in views(head, rows):
        for place in places(part):
            yield variant, own, place


def seen_places(head: InversionHead) -> list[tuple[str, int, str]]:
    """Return network, batch and adversary, each once, whatever the attacks that reconstruct there."""
    return list(dict.fromkeys((network, batch, adversary) for _, network, batch, adversary in places(head)))


def attacker(attack: str, variant: str, network: str) -> str:
    """Return an attack and its network, with its variant where it is not that of headlines."""
    return f"{attack}, {network}" if variant == MAIN else f"{attack} ({variant}), {network}"


def named(row: Row) -> str:
    """Return the mechanism, with its variant where it is an ablation."""
    return str(row["defence"]) if row["variant"] == MAIN else f"{row['defence']} ({row['variant']})"
