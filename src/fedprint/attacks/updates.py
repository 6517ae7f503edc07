"""Tables of updates: in memory, some rows of a store or of another table, and two tables joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedprint.attacks.features import Updates
from fedprint.params import select
from fedprint.store.reader import UpdateStore
from fedprint.types import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class MemoryUpdates:
    """Updates held in memory: ``values`` (n, d), layers side by side."""

    sizes: dict[str, int]
    values: Floats

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return tuple(self.sizes)

    def blocks(self, layers: Sequence[str] | None = None, *, columns: int = 1 << 14) -> Iterator[Floats]:
        """Yield the chosen layers side by side in column blocks, cut where the store cuts them."""
        ends = np.cumsum([0, *self.sizes.values()])
        wanted = set(select(self.layers, layers))
        spans = [(int(a), int(b)) for name, a, b in zip(self.sizes, ends, ends[1:], strict=False) if name in wanted]
        chosen = np.concatenate([np.arange(a, b) for a, b in spans])
        for first in range(0, len(chosen), columns):
            part = chosen[first : first + columns]
            whole = part[-1] - part[0] + 1 == len(part)
            yield self.values[:, part[0] : part[-1] + 1] if whole else self.values[:, part]


@dataclass(frozen=True, kw_only=True)
class RowsOf:
    """Some ``rows`` (k,) of a table of updates, as a table: of a store only these rows are read."""

    updates: Updates
    rows: Ints

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return self.updates.layers

    @property
    def sizes(self) -> dict[str, int]:
        """Columns of each layer."""
        return self.updates.sizes

    def blocks(self, layers: Sequence[str] | None = None, *, columns: int = 1 << 14) -> Iterator[NDArray[np.floating]]:
        """Yield the chosen layers in column blocks (k, <= columns)."""
        if isinstance(self.updates, UpdateStore):
            yield from self.updates.blocks(layers, self.rows, columns=columns)
            return
        for block in self.updates.blocks(layers, columns=columns):
            yield block[self.rows]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Two tables of updates as one: the rows of ``first``, then those of ``second``."""

    first: Updates
    second: Updates

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return self.second.layers

    @property
    def sizes(self) -> dict[str, int]:
        """Columns of each layer."""
        return {name: self.second.sizes[name] for name in self.layers}

    def blocks(self, layers: Sequence[str] | None = None, *, columns: int = 1 << 14) -> Iterator[NDArray[np.floating]]:
        """Yield the chosen layers in column blocks (rows of both, <= columns)."""
        pairs = zip(
            self.first.blocks(layers, columns=columns), self.second.blocks(layers, columns=columns), strict=True
        )
        for upper, lower in pairs:
            yield np.concatenate([np.asarray(upper, np.float32), np.asarray(lower, np.float32)])
