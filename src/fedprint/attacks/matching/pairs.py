"""Balanced pairs: half of them of one user, half of two."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedprint.types import FedprintError, Ints


def balanced_pairs(
    left: Ints, right: Ints, n: int, rng: np.random.Generator, *, distinct: bool = False
) -> tuple[Ints, NDArray[np.bool_]]:
    """Draw pairs (n, 2) of positions in ``left`` (a,) and ``right`` (b,), which hold owners, and "same owner" (n,).

    The right side is drawn first, from all whose owner is on the left too, for both kinds of pairs alike; then a row
    of the same owner, or of another owner drawn uniformly. ``distinct``: both sides are the same rows, and no row is
    paired with itself. In random order. Raises FedprintError where no pair of one kind exists.
    """
    places = {int(owner): np.flatnonzero(left == owner) for owner in np.unique(left)}
    enough = [owner for owner, rows in places.items() if len(rows) > int(distinct)]
    possible = np.flatnonzero(np.isin(right, enough))
    if not len(possible) or len(places) < 2:
        raise FedprintError(
            "matching needs two users, one of them with an update on either side; record more rounds or users"
        )
    owners = np.array(list(places))
    chosen = rng.choice(possible, n)
    same = rng.permutation(np.arange(n) % 2 == 0)
    pairs = np.empty((n, 2), dtype=np.int64)
    for row, (j, wanted) in enumerate(zip(chosen.tolist(), same.tolist(), strict=True)):
        owner = int(right[j]) if wanted else int(rng.choice(owners[owners != right[j]]))
        rows = places[owner]
        pairs[row] = rng.choice(rows[rows != j] if distinct and wanted else rows), j
    return pairs, same
