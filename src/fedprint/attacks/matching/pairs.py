"""Balanced pairs: half of them of one user, half of two users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedprint.types import FedprintError, Ints


def balanced_pairs(
    left: Ints, right: Ints, n: int, rng: np.random.Generator, *, distinct: bool = False
) -> tuple[Ints, NDArray[np.bool_]]:
    """Draw pairs (n, 2) of positions in ``left`` (a,) and ``right`` (b,), which hold owners, and "same owner" (n,).

    For both kinds of pairs the right side is drawn first, from all rows whose owner is on the left too. The left side
    is a row of the same owner, or of another owner drawn uniformly. With ``distinct`` both sides are the same rows,
    and no row is paired with itself. The order is random. Raises FedprintError where one kind of pair does not exist.
    """
    rows_of = {int(owner): np.flatnonzero(left == owner) for owner in np.unique(left)}
    enough = [owner for owner, rows in rows_of.items() if len(rows) > int(distinct)]
    possible = np.flatnonzero(np.isin(right, enough))
    if not len(possible) or len(rows_of) < 2:
        raise FedprintError(
            "matching needs two users, one of them with an update on either side; record more rounds or users"
        )
    owners = np.array(list(rows_of))
    chosen = rng.choice(possible, n)
    same = rng.permutation(np.arange(n) % 2 == 0)
    pairs = np.empty((n, 2), dtype=np.int64)
    for row, (j, wanted) in enumerate(zip(chosen.tolist(), same.tolist(), strict=True)):
        owner = int(right[j]) if wanted else int(rng.choice(owners[owners != right[j]]))
        rows = rows_of[owner]
        pairs[row] = rng.choice(rows[rows != j] if distinct and wanted else rows), j
    return pairs, same
