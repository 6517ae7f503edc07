"""Tables of updates: in memory, some rows of a store or of another table, and two tables joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedprint.attacks.features import Updates, num_rows
from fedprint.params import select
from fedprint.store.sent import Sent
from fedprint.types import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class MemoryUpdates:
    """Updates held in memory: ``values`` (n, d), layers side by side, and what is known of their senders."""

    sizes: dict[str, int]
    values: Floats
    sent: Sent = field(default_factory=Sent.unknown)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return tuple(self.sizes)

    def blocks(
        self, layers: Sequence[str] | None = None, rows: Ints | None = None, *, columns: int = 1 << 14
    ) -> Iterator[Floats]:
        """Yield the chosen layers side by side in column blocks, cut where the store cuts them."""
        ends = np.cumsum([0, *self.sizes.values()])
        wanted = set(select(self.layers, layers))
        spans = [(int(a), int(b)) for name, a, b in zip(self.sizes, ends, ends[1:], strict=False) if name in wanted]
        chosen = np.concatenate([np.arange(a, b) for a, b in spans])
        for first in range(0, len(chosen), columns):
            part = chosen[first : first + columns]
            whole = part[-1] - part[0] + 1 == len(part)
            block = self.values[:, part[0] : part[-1] + 1] if whole else self.values[:, part]
            yield block if rows is None else block[rows]


@dataclass(frozen=True, kw_only=True)
class OfTable:
    """A table whose rows are made of those of another one, ``updates``."""

    updates: Updates

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return self.updates.layers

    @property
    def sizes(self) -> dict[str, int]:
        """Columns of each layer."""
        return self.updates.sizes


@dataclass(frozen=True, kw_only=True)
class RowsOf(OfTable):
    """Some ``rows`` (k,) of a table of updates, as a table: of a store only these rows are read."""

    rows: Ints

    @property
    def sent(self) -> Sent:
        """What is known of each row's sender."""
        return self.updates.sent.rows(self.rows)

    def blocks(
        self, layers: Sequence[str] | None = None, rows: Ints | None = None, *, columns: int = 1 << 14
    ) -> Iterator[NDArray[np.floating]]:
        """Yield the chosen layers in column blocks (k, <= columns)."""
        yield from self.updates.blocks(layers, self.rows if rows is None else self.rows[rows], columns=columns)


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

    @property
    def sent(self) -> Sent:
        """What is known of each row's sender."""
        return self.first.sent.joined(self.second.sent)

    def blocks(
        self, layers: Sequence[str] | None = None, rows: Ints | None = None, *, columns: int = 1 << 14
    ) -> Iterator[NDArray[np.floating]]:
        """Yield the chosen layers in column blocks (rows of both, <= columns)."""
        n = num_rows(self.first)
        upper = None if rows is None else rows[rows < n]
        lower = None if rows is None else rows[rows >= n] - n
        order = None if rows is None else np.argsort(np.argsort(rows >= n, kind="stable"), kind="stable")
        for parts in zip(
            self.first.blocks(layers, upper, columns=columns),
            self.second.blocks(layers, lower, columns=columns),
            strict=True,
        ):
            block = np.concatenate([np.asarray(part, np.float32) for part in parts])
            yield block if order is None else block[order]
