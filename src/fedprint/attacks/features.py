"""Updates as features: transforms, explicit matrices, and kernels computed in bounded memory.

Everything here is label-free. Letters: n rows, p rows of prior devices, d parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedprint.params import select

Floats = NDArray[np.float32]
Transform = Literal["l2", "std", "sqrt", "sign"]
TRANSFORMS: tuple[Transform, ...] = ("l2", "std", "sqrt", "sign")
"""``l2``: the normalised update (the papers). ``std``: each coordinate of it standardised on the prior rows.
``sqrt``: signed square roots, which let small coordinates speak. ``sign``: the signs alone (0 stays 0: which weights a
device never touched is itself a trace)."""

_COLUMNS = 1 << 13


class Updates(Protocol):
    """A table of updates, read in column blocks: the store's, or shadow updates in memory."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""

    @property
    def sizes(self) -> dict[str, int]:
        """Columns of each layer."""

    def blocks(self, layers: Sequence[str] | None = None, *, columns: int = ...) -> Iterator[NDArray[np.floating]]:
        """Yield the chosen layers side by side in column blocks (n, <= columns), left to right."""


def layer_groups(updates: Updates) -> tuple[tuple[str, ...], ...]:
    """Group parameter tensors into layers: ``fc1.weight`` and ``fc1.bias`` are one; a long output bias stands alone.

    A head with as many outputs as a vocabulary shows word frequencies in its bias alone; blocks of very different
    nature are kept apart so that a kernel can weight them.
    """
    groups: dict[str, list[str]] = {}
    for name in updates.layers:
        stem, _, leaf = name.rpartition(".")
        alone = leaf == "bias" and updates.sizes[name] >= 1000
        groups.setdefault(name if alone else stem or name, []).append(name)
    return tuple(tuple(names) for names in groups.values())


def matrix(updates: Updates, layers: Sequence[str] | None, fit: NDArray[np.int64], transform: Transform) -> Floats:
    """Return explicit features (n, d) of the chosen layers; ``fit`` are the rows that standardisation may look at."""
    raw = np.concatenate([np.asarray(b, np.float32) for b in updates.blocks(layers, columns=_COLUMNS)], axis=1)
    raw = _unit(raw)
    if transform == "std":
        mean, spread = raw[fit].mean(0), raw[fit].std(0)
        return (raw - mean) / _floor(spread)
    return raw if transform == "l2" else _unit(_elementwise(raw, transform))


def kernels(
    updates: Updates, layers: Sequence[str], fit: NDArray[np.int64], transforms: Sequence[Transform] = TRANSFORMS
) -> dict[Transform, Floats]:
    """Return for each transform the kernel (n, p) between all rows and the ``fit`` rows.

    The transformed update is normalised, centred on the mean of the fit rows, and normalised again, all exactly, from
    products accumulated over column blocks: memory is one block plus (n, p) however large the layer.
    """
    norms = _row_norms(updates, layers)
    rows = len(norms)
    products = {t: torch.zeros(rows, len(fit)) for t in transforms}
    squares = {t: torch.zeros(rows, dtype=torch.float64) for t in transforms}
    selected = torch.from_numpy(fit)
    for block in updates.blocks(layers, columns=_COLUMNS):
        unit = torch.from_numpy(np.asarray(block, np.float32)) / norms
        for transform in transforms:
            z = _transform_block(unit, selected, transform)
            products[transform] += z @ z[selected].T
            squares[transform] += z.square().sum(1, dtype=torch.float64)
    return {t: _normalised(products[t].double(), squares[t], selected) for t in transforms}


def _row_norms(updates: Updates, layers: Sequence[str]) -> torch.Tensor:
    total: torch.Tensor | None = None
    for block in updates.blocks(layers, columns=_COLUMNS):
        part = torch.from_numpy(np.asarray(block, np.float32)).square().sum(1, keepdim=True, dtype=torch.float64)
        total = part if total is None else total + part
    if total is None:
        raise ValueError("no columns to read")
    return total.sqrt().clamp_min(1e-30).float()


def _transform_block(unit: torch.Tensor, fit: torch.Tensor, transform: Transform) -> torch.Tensor:
    if transform == "std":
        reference = unit[fit]
        spread = reference.std(0, unbiased=False)
        # a coordinate that hardly moves would be blown up without bound
        return (unit - reference.mean(0)) / (spread + 1e-3 * spread.square().mean().sqrt() + 1e-12)
    if transform == "sqrt":
        return unit.sign() * unit.abs().sqrt()
    return unit.sign() if transform == "sign" else unit


def _normalised(products: torch.Tensor, squares: torch.Tensor, fit: torch.Tensor) -> Floats:
    """Normalise rows, centre on the fit rows' mean in feature space, normalise again: (n, p) -> (n, p)."""
    length = squares.sqrt().clamp_min(1e-15)
    k = products / length[:, None] / length[fit][None]
    to_mean = k.mean(1)  # inner product of each row with the mean fit row
    mean_square = to_mean[fit].mean()
    centred = k - to_mean[:, None] - to_mean[fit][None] + mean_square
    own = (1 - 2 * to_mean + mean_square).clamp_min(1e-12).sqrt()
    result: Floats = (centred / own[:, None] / own[fit][None]).numpy().astype(np.float32)
    return result


def _elementwise(rows: Floats, transform: Transform) -> Floats:
    signs = np.sign(rows)
    return signs * np.sqrt(np.abs(rows)) if transform == "sqrt" else signs


def _unit(rows: Floats) -> Floats:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def _floor(spread: Floats) -> Floats:
    return spread + np.float32(1e-3 * np.sqrt(np.mean(spread**2)) + 1e-12)


def chosen_layers(updates: Updates, layers: Sequence[str] | None) -> tuple[str, ...]:
    """Return the parameter names of ``layers`` (dotted prefixes; None = all)."""
    return select(updates.layers, layers)
