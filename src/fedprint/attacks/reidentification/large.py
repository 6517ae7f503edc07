"""Ridge regression for many updates: it multiplies no asked update with a known one.

The dual solution is a weight per known update and user. Its weights on the parameters, a user's column of which is a
sum of known updates, take p d m operations, and scores q d m: for m users far less than the q d p of a kernel between
asked and known updates, and no table (q, p). The answers are those of the kernel, except for the rounding of float32.

Letters: n rows, p known (fit) ones, q asked ones, d parameters, m options.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedprint.attacks.dense import row_squares
from fedprint.attacks.features import (
    LANES,
    ROW_WISE,
    Block,
    Centring,
    Products,
    column_moments,
    deal,
    kernel_in_place,
    products,
    row_norms,
    transformed,
)
from fedprint.attacks.problem import Problem
from fedprint.attacks.updates import RowsOf
from fedprint.types import Doubles, Floats, Scores

_CELLS = 1 << 24
"""Most entries of one block of columns, of which a lane holds several copies."""


def known_kernel(problem: Problem, blocks: Sequence[Block], device: str) -> tuple[Floats, list[Centring]]:
    """Return the mean kernel (p, p) of the blocks between known updates, and how each block was centred."""
    table, every = RowsOf(updates=problem.updates, rows=problem.fit), np.arange(len(problem.fit))
    centrings: list[Centring] = []
    total: Floats = np.zeros(0, dtype=np.float32)
    for layers, transform in blocks:
        groups = (tuple(chain(*layers)),) if transform in ROW_WISE else layers  # no second table for a sum
        sums: Products = functools.reduce(
            operator.add,
            (products(table, names, every, (transform,), device=device)[transform] for names in groups),
        )
        of_block, centred = kernel_in_place(sums, every)
        total = np.add(total, of_block, out=total) if centrings else of_block
        centrings.append(centred)
        del sums, of_block  # they are as large as the total
    total /= len(blocks)
    return total, centrings


def scores_by_parameters(
    problem: Problem, blocks: Sequence[Block], centrings: Sequence[Centring], dual: Doubles, device: str
) -> Scores:
    """Return ``K_ask dual`` (q, m) with the mean kernel of the blocks, for weights ``dual`` (p, m) of known updates."""
    weights = torch.from_numpy(dual.astype(np.float32)).to(device)
    parts = (_of_block(problem, *each, weights) for each in zip(blocks, centrings, strict=True))
    scores: Scores = (functools.reduce(operator.add, parts) / len(blocks)).cpu().double().numpy()
    return scores


@dataclass
class _Sums:
    """Sums over columns: ``outputs`` (q, m), ``squares`` and ``to_mean`` (q,), ``of_mean`` (m,), ``mean_square`` ()."""

    outputs: Tensor
    squares: Tensor
    to_mean: Tensor
    of_mean: Tensor
    mean_square: Tensor

    def add(self, *parts: Tensor) -> None:
        for field, part in zip(fields(self), parts, strict=True):
            getattr(self, field.name).add_(part)


def _of_block(problem: Problem, block: Block, centred: Centring, dual: Tensor) -> Tensor:
    """Return outputs (q, m) of one block; two lanes sum alternate columns, so that bits do not depend on the cores."""
    layers, transform = block
    p, q, m, device = len(problem.fit), len(problem.ask), dual.shape[1], dual.device
    table = RowsOf(updates=problem.updates, rows=np.concatenate([problem.fit, problem.ask]))
    length, size = (part.float()[:, None].to(device) for part in (centred.length, centred.size))
    share, width = dual / size, max(1, _CELLS // (p + q))
    total = share.sum(0)

    def add(sums: _Sums, norms: Tensor, values: NDArray[np.floating]) -> None:
        raw = torch.from_numpy(np.asarray(values, np.float32)).to(device)
        moments = column_moments(raw[:p], norms[:p]) if transform == "std" else None
        z = transformed(raw, transform, norms, moments)
        known, asked = z[:p] / length, z[p:]
        mean = known.mean(0)
        columns = known.T @ share - mean[:, None] * total
        sums.add(asked @ columns, row_squares(asked), asked @ mean, mean @ columns, mean @ mean)

    sums, other = (
        _Sums(*(torch.zeros(shape, device=device) for shape in ((q, m), (q,), (q,), (m,), ()))) for _ in range(LANES)
    )
    for names in layers:
        norms = (row_norms(table, names) if transform == "std" else torch.ones(p + q, 1)).to(device)
        deal(table.blocks(names, columns=width), [functools.partial(add, each, norms) for each in (sums, other)])
    sums.add(*(getattr(other, field.name) for field in fields(other)))
    asked_length = sums.squares.sqrt().clamp_min(1e-15)
    spread = (1 - 2 * sums.to_mean / asked_length + sums.mean_square).clamp_min(1e-12).sqrt()
    return (sums.outputs / asked_length[:, None] - sums.of_mean) / spread[:, None]
