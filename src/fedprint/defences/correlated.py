"""Noise that is correlated between rounds, so that less of it adds up in the released models: a banded factorisation.

Released models are prefix sums of the rounds' sums. A round's noise is row t of ``C^-1 Z``, with Z independent and C
lower triangular with ``bands`` bands: the square root of the matrix of prefix sums, cut off (Choquette-Choo et al.
2023, arXiv:2306.08153; Kalinin and Lampert 2024, arXiv:2405.13763). Each round takes back a part of the noise before.

The price: a client changes C's column of every round it takes part in. Where it takes part at most every ``bands``-th
round, these columns have no row in common, and their length is the sensitivity of each.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from fedprint.types import Doubles


def band(bands: int) -> Doubles:
    """Return C's first column (bands,): the coefficients of (1 - x)^(-1/2)."""
    j = np.arange(1, bands)
    return np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])


@cache
def noise_weights(bands: int, rounds: int) -> tuple[float, ...]:
    """Return by how much a round's noise holds the draws of this round, the one before ...: first ``rounds`` of them.

    They are the coefficients of 1 / C, times the length of C's column: with draws of N(0, (z S)^2) the noise
    multiplier of a client's part in one round is z.
    """
    column = band(bands)
    inverse = np.zeros(rounds)
    inverse[0] = 1.0
    for t in range(1, rounds):
        reach = min(t, bands - 1)
        inverse[t] = -column[1 : reach + 1] @ inverse[t - reach : t][::-1]
    return tuple((np.linalg.norm(column) * inverse).tolist())


def without_correlation(sums: Doubles, bands: int) -> tuple[Doubles, Doubles]:
    """Return what a client alone adds to each released sum (T, m), with the least noise, and by how much it is noisier.

    Whoever knows C takes the correlation back (``C sums``) and projects on the column of the round, which holds nothing
    else of a client that takes part at most every ``bands``-th round. The noise is then independent between these
    rounds, z times the norm of a client, times the second result (T,): above 1 in the last rounds, whose columns end.
    """
    rounds = len(sums)
    factor = sum(c * np.eye(rounds, k=-j) for j, c in enumerate(band(bands)))
    lengths = np.linalg.norm(factor, axis=0)
    own: Doubles = factor.T @ (factor @ sums) / lengths[:, None] ** 2
    return own, np.linalg.norm(band(bands)) / lengths
