"""Remove from updates what public background data added to them, on kernels alone.

A defence that adds background examples adds, to first order, the update that these examples alone would cause. The
adversary has the background: it trains devices with background data alone, whose updates span *nuisance* directions.
``project`` removes all of these directions from every update, softly. ``match`` removes from each update the one
direction that fits it best (a device of mm-aug adds a single cluster).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedprint.types import Doubles, Floats, Ints

Denoise = Literal["project", "match"]

SOFTNESS = 0.01
"""Added to the unit squares of the nuisance directions, so that weak directions are removed only in part."""
_LEAST = 1e-3


def denoised(kernel: Floats, fit: Ints, nuisance: Ints, how: Denoise) -> Floats:
    """Return the kernel (n, p) of all rows with the fit rows without the nuisance, rows at unit length again.

    ``kernel`` (n, p + b) are inner products of rows of unit length with the p ``fit`` rows and then the b ``nuisance``
    rows; both are positions among the n rows.
    """
    p = len(fit)
    with_fit, with_nuisance = kernel[:, :p].astype(np.float64), kernel[:, p:].astype(np.float64)
    between = (with_nuisance[nuisance] + with_nuisance[nuisance].T) / 2
    remove = _project if how == "project" else _match
    rest, squares = remove(with_fit, with_nuisance, between, fit)
    length = np.sqrt(np.maximum(squares, _LEAST))
    result: Floats = (rest / length[:, None] / length[fit][None]).astype(np.float32)
    return result


def _project(with_fit: Doubles, with_nuisance: Doubles, between: Doubles, fit: Ints) -> tuple[Doubles, Doubles]:
    """Return the Schur complement ``K - K_b (K_bb + s I)^-1 K_b'``: inner products (n, p) and squared lengths (n,)."""
    inner = between + SOFTNESS * np.eye(len(between))
    weights = np.linalg.solve(inner, with_nuisance.T)
    return with_fit - with_nuisance @ weights[:, fit], 1 - np.einsum("nb,bn->n", with_nuisance, weights)


def _match(with_fit: Doubles, with_nuisance: Doubles, between: Doubles, fit: Ints) -> tuple[Doubles, Doubles]:
    """Return the inner products of ``x - <x, e> e``, where e is the nuisance direction that fits x best, if any."""
    rows = np.arange(len(with_nuisance))
    best = with_nuisance.argmax(1)
    part = np.maximum(with_nuisance[rows, best], 0)
    part_of_row, part_of_fit = part[:, None], part[fit][None]
    of_fit = with_nuisance[fit]  # (p, b)
    rest = (
        with_fit
        - part_of_row * of_fit[:, best].T
        - part_of_fit * with_nuisance[:, best[fit]]
        + part_of_row * part_of_fit * between[np.ix_(best, best[fit])]
    )
    return rest, 1 - part**2
