"""Updates as features: transforms, explicit matrices, and kernels computed in bounded memory.

Everything here is label-free. Letters: n rows, p rows of prior devices, d parameters.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedprint.attacks.dense import eigenpairs, matrix_product, row_squares
from fedprint.store.sent import Sent
from fedprint.types import Floats, Ints

Transform = Literal["l2", "std", "sqrt", "sign"]
TRANSFORMS: tuple[Transform, ...] = ("l2", "std", "sqrt", "sign")
"""``l2``: the normalised update (the papers). ``std``: each coordinate of it standardised on the prior rows.
``sqrt``: signed square roots, which give small coordinates more weight. ``sign``: the signs alone (0 stays 0: weights
that a device never changed identify it too)."""
ROW_WISE: tuple[Transform, ...] = ("l2", "sqrt", "sign")
"""Transforms that do not depend on which rows are fitted."""

Block = tuple[tuple[tuple[str, ...], ...], Transform]
"""One or several layers (each a tuple of parameter names) under one transform."""

_COLUMNS = 1 << 13
_CELLS = 1 << 24
"""Most entries of one column block: with many rows blocks are narrower, so that memory is limited."""
_SPAN = 1 << 22
"""Most entries of a kernel that are normalised at once, in float64."""
_SQUARE = 1 << 10
LANES = 2
"""Threads that multiply: the order of additions, and so every bit, is the same on any machine."""


class Updates(Protocol):
    """A table of updates, read in column blocks: the store's, or shadow updates in memory."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""

    @property
    def sizes(self) -> dict[str, int]:
        """Columns of each layer."""

    @property
    def sent(self) -> Sent:
        """What is known of each row's sender, beside the update."""

    def blocks(
        self, layers: Sequence[str] | None = None, rows: Ints | None = None, *, columns: int = ...
    ) -> Iterator[NDArray[np.floating]]:
        """Yield the chosen layers side by side in column blocks (n, <= columns), left to right; of all rows or some."""


def num_rows(updates: Updates) -> int:
    """Return how many updates there are."""
    return len(next(iter(updates.blocks(updates.layers[:1], columns=1))))


def layer_groups(updates: Updates) -> tuple[tuple[str, ...], ...]:
    """Group parameter tensors into layers: ``fc1.weight`` and ``fc1.bias`` are one; a long output bias stands alone.

    The bias of a head with a vocabulary as outputs shows word frequencies. Blocks of such different kinds are kept
    apart so that a kernel can weight them.
    """
    groups: dict[str, list[str]] = {}
    for name in updates.layers:
        stem, _, leaf = name.rpartition(".")
        alone = leaf == "bias" and updates.sizes[name] >= 1000
        groups.setdefault(name if alone else stem or name, []).append(name)
    return tuple(tuple(names) for names in groups.values())


def matrix(updates: Updates, layers: Sequence[str] | None) -> Floats:
    """Return the chosen layers of every update, L2-normalised together, as the papers do: (n, d)."""
    raw = np.concatenate([np.asarray(b, np.float32) for b in updates.blocks(layers, columns=_COLUMNS)], axis=1)
    raw /= np.maximum(row_squares(torch.from_numpy(raw)).sqrt().numpy()[:, None], 1e-30)
    return raw


def standardised(x: Floats, fit: Ints) -> Floats:
    """Return normalised updates (n, d) with each coordinate standardised on the fit rows, and of unit length again."""
    reference = x[fit]
    z = (x - reference.mean(0)) / _spread(torch.from_numpy(reference)).numpy()
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-30)
    result: Floats = z
    return result


def _spread(reference: Tensor) -> Tensor:
    """Return each column's standard deviation plus a floor: else columns that hardly move would grow without bound."""
    spread = reference.std(0, unbiased=False)
    return spread + 1e-3 * spread.square().mean().sqrt() + 1e-12


def in_span(x: Floats, fit: Ints, device: str = "cpu") -> Floats:
    """Return coordinates (n, <= p) with the same inner products to every fit row; ``x`` (n, d) itself where d <= p.

    The weights of a linear model lie in the span of its examples: it gives the same answers with far fewer columns.
    """
    if x.shape[1] <= len(fit):
        return x
    inner = matrix_product(x, x[fit].T, device).astype(np.float64)
    values, vectors = eigenpairs(inner[fit], device)
    keep = values > 1e-6 * values[-1]  # below that is float32 rounding
    coordinates: Floats = matrix_product(inner, vectors[:, keep] / np.sqrt(values[keep]), device).astype(np.float32)
    return coordinates


@dataclass(frozen=True, kw_only=True)
class Products:
    """Inner products of transformed updates, not yet normalised; those of two disjoint blocks of columns add up.

    ``cross`` (n, p) between all rows and the fit rows, ``squares`` (n,) of each row with itself.
    """

    cross: Tensor
    squares: Tensor

    @classmethod
    def zeros(cls, n: int, p: int, device: str, dtype: torch.dtype) -> Products:
        """Return the products of no columns at all."""
        return cls(cross=torch.zeros(n, p, device=device, dtype=dtype), squares=torch.zeros(n, device=device))

    def cpu(self) -> Products:
        """Return them on the CPU, in float32."""
        return Products(cross=self.cross.cpu().float(), squares=self.squares.cpu())

    def __add__(self, other: Products) -> Products:
        """Join two blocks of columns."""
        return Products(cross=self.cross + other.cross, squares=self.squares + other.squares)

    def scattered(self, order: Tensor, n: int) -> Products:
        """Return the rows at the positions ``order`` among n rows, NaN elsewhere."""
        if torch.equal(order, torch.arange(n)):
            return self
        cross, squares = torch.full((n, self.cross.shape[1]), torch.nan), torch.full((n,), torch.nan)
        cross[order], squares[order] = self.cross, self.squares
        return Products(cross=cross, squares=squares)

    def columns(self, fit: Ints) -> Products:
        """Return the products with some of the fit rows only (positions among them)."""
        return Products(cross=self.cross[:, torch.from_numpy(fit)], squares=self.squares)


def products(
    updates: Updates,
    layers: Sequence[str],
    fit: Ints,
    transforms: Sequence[Transform] = TRANSFORMS,
    norms: Tensor | None = None,
    rows: Ints | None = None,
    device: str = "cpu",
) -> dict[Transform, Products]:
    """Return the products of the transforms over the chosen layers, in the memory of a few column blocks.

    ``norms`` (n, 1) are those of :func:`row_norms`, if they are known; only ``std`` needs them. With ``rows`` only
    these rows and the fit rows are multiplied; all others are NaN. Of each block of columns two threads multiply some
    rows each, while one more reads and transforms the next block. ``device`` (cpu, cuda) multiplies; what comes back is
    on the CPU. Processors with instructions for it multiply signs as integers of 8 bits, several times faster than as
    floats and with the same result: up to 2^24 columns both are exact.
    """
    n, p = num_rows(updates), len(fit)
    if norms is None:
        norms = row_norms(updates, layers) if "std" in transforms else torch.ones(n, 1)
    others = np.setdiff1d(np.arange(n) if rows is None else rows, fit)
    order = torch.from_numpy(np.concatenate([fit, others]))
    in_order = torch.equal(order, torch.arange(n))
    adders = {t: _adder(t, device) for t in transforms}
    norms, columns = norms[order].to(device), max(256, min(_COLUMNS, _CELLS // n))
    total = {
        t: Products.zeros(len(order), p, device, torch.int32 if add is _add_signs else torch.float32)
        for t, add in adders.items()
    }
    blocks = updates.blocks(layers, columns=columns)

    def following() -> dict[Transform, Tensor] | None:
        if (block := next(blocks, None)) is None:
            return None
        read = torch.from_numpy(np.asarray(block, np.float32))
        values = (read if in_order else read[order]).to(device)
        return {t: made(values, t) for t in transforms}

    def made(values: Tensor, transform: Transform) -> Tensor:
        moments = column_moments(values[:p], norms[:p]) if transform == "std" else None
        z = transformed(values, transform, norms, moments)
        total[transform].squares.add_(row_squares(z))
        return z.to(torch.int8) if adders[transform] is _add_signs else z

    tiles = list(_tiles(len(order), p)) if device == "cpu" else [slice(None)]
    with ThreadPoolExecutor(LANES + 1) as pool:
        coming = pool.submit(following)
        while (ready := coming.result()) is not None:
            coming = pool.submit(following)
            for t, z in ready.items():
                list(pool.map(functools.partial(adders[t], total[t].cross, z), tiles))
    if device == "cpu":
        for found in total.values():
            _mirror(found.cross, p)
    return {t: total.pop(t).cpu().scattered(order, n) for t in transforms}


def deal(blocks: Iterator[NDArray[np.floating]], lanes: Sequence[Callable[[NDArray[np.floating]], None]]) -> None:
    """Give the blocks to the lanes in turn, each on a thread of its own, while one more reads the next turn's."""

    def turn() -> list[NDArray[np.floating]]:
        return list(itertools.islice(blocks, len(lanes)))

    with ThreadPoolExecutor(len(lanes) + 1) as pool:
        following = pool.submit(turn)
        while held := following.result():
            following = pool.submit(turn)
            for _ in pool.map(lambda lane, block: lane(block), lanes, held):
                pass


def _adder(transform: Transform, device: str) -> Callable[[Tensor, Tensor, slice], None]:
    """Return what adds the inner products (r, p) of some rows of a block with its first ``p`` to a total (n, p)."""
    if device != "cpu":
        return _add_cross_there
    return _add_signs if transform == "sign" and _multiplies_bytes() else _add_cross


@functools.cache
def _multiplies_bytes() -> bool:
    """Return whether the processor has instructions for it; without them torch._int_mm takes 30 times as long."""
    return bool(torch.cpu.get_capabilities().get("avx512_vnni", False))


def _add_cross(total: Tensor, z: Tensor, rows: slice) -> None:
    reach, values = min(rows.stop, total.shape[1]), z.numpy()
    total[rows, :reach] += torch.from_numpy(values[rows] @ values[:reach].T)


def _add_signs(total: Tensor, z: Tensor, rows: slice) -> None:
    reach = min(rows.stop, total.shape[1])
    total[rows, :reach] += torch._int_mm(z[rows], z[:reach].T)


def _tiles(n: int, p: int) -> Iterator[slice]:
    """Yield some rows at a time; products of fit rows reach to the diagonal: :func:`_mirror` fills what is above it."""
    for first in (*range(0, p, _SQUARE), *range(p, n, _SQUARE)):
        yield slice(first, min(first + _SQUARE, p if first < p else n))


def _mirror(total: Tensor, p: int) -> None:
    for rows in _tiles(p, p):
        total[: rows.start, rows] = total[rows, : rows.start].T


def _add_cross_there(total: Tensor, z: Tensor, rows: slice) -> None:
    total.addmm_(z[rows], z[: total.shape[1]].T)


def row_norms(updates: Updates, layers: Sequence[str]) -> Tensor:
    """Return each row's length (n, 1) over the chosen layers."""
    columns = max(256, min(_COLUMNS, _CELLS // num_rows(updates)))
    blocks = (torch.from_numpy(np.asarray(b, np.float32)) for b in updates.blocks(layers, columns=columns))
    total: Tensor = sum((row_squares(block).double() for block in blocks), torch.zeros(()))
    return total.sqrt().clamp_min(1e-30).float()[:, None]


Moments = tuple[Tensor, Tensor]
"""Mean and spread (c,) of columns over the fit rows."""


def column_moments(values: Tensor, norms: Tensor) -> Moments:
    """Return mean and spread of the columns of normalised updates: ``values`` (p, c) with lengths ``norms`` (p, 1)."""
    unit = values / norms
    return unit.mean(0), _spread(unit)


def transformed(values: Tensor, transform: Transform, norms: Tensor, moments: Moments | None = None) -> Tensor:
    """Transform one block of columns (n, c) of updates with lengths ``norms`` (n, 1); ``std`` needs their moments.

    Scaling a row changes nothing but its length for l2, sqrt and sign, and length is normalised away later.
    """
    if moments is not None:
        mean, spread = moments
        return (values / norms).sub_(mean).div_(spread)
    if transform == "sqrt":
        return values.abs().sqrt_().copysign_(values)
    return values.sign() if transform == "sign" else values


@dataclass(frozen=True, kw_only=True)
class Centring:
    """How rows were centred on the fit rows' mean: ``length`` before, ``to_mean`` and ``size`` after (n,).

    ``to_mean`` is the mean cosine with the fit rows, ``mean_square`` that of the fit rows themselves.
    """

    length: Tensor
    to_mean: Tensor
    mean_square: Tensor

    @property
    def size(self) -> Tensor:
        """Lengths (n,) of centred rows that were of unit length."""
        return (1 - 2 * self.to_mean + self.mean_square).clamp_min(1e-12).sqrt()


def centring(sums: Products, fit: Ints) -> Centring:
    """Return how the rows of these products are centred, in float64."""
    rows = torch.from_numpy(fit)
    length = sums.squares.double().sqrt().clamp_min(1e-15)
    to_mean = torch.cat([_cosines(sums, length, rows, span).mean(1) for span in _spans(sums)])
    return Centring(length=length, to_mean=to_mean, mean_square=to_mean[rows].mean())


def kernel(sums: Products, fit: Ints) -> Floats:
    """Normalise rows, centre on the fit rows' mean in feature space, normalise again, all exactly: (n, p).

    In float64, some rows at a time, into float32.
    """
    return _centred(sums, fit, centring(sums, fit), np.empty(tuple(sums.cross.shape), dtype=np.float32))


def kernel_in_place(sums: Products, fit: Ints) -> tuple[Floats, Centring]:
    """Return the kernel (n, p) in the memory of ``sums.cross``, which are on the CPU, and how rows were centred."""
    centred = centring(sums, fit)
    return _centred(sums, fit, centred, sums.cross.numpy()), centred


def _centred(sums: Products, fit: Ints, centred: Centring, out: Floats) -> Floats:
    rows, to_mean, size = torch.from_numpy(fit), centred.to_mean, centred.size
    for span in _spans(sums):
        k = _cosines(sums, centred.length, rows, span)
        k = k - to_mean[span][:, None] - to_mean[rows][None] + centred.mean_square
        out[span.numpy()] = (k / size[span][:, None] / size[rows][None]).numpy()
    return out


def _spans(sums: Products) -> Sequence[Tensor]:
    """Return some rows at a time."""
    n, p = sums.cross.shape
    return torch.split(torch.arange(n), max(1, _SPAN // p))


def _cosines(sums: Products, length: Tensor, fit: Tensor, span: Tensor) -> Tensor:
    return sums.cross[span].double() / length[span][:, None] / length[fit][None]
