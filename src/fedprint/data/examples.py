"""Helpers on :data:`~fedprint.types.Examples`: a mapping of columns whose first dimension is n."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedprint.types import Examples, FedprintError

CLUSTER = "cluster"
"""Column of background examples: the mode each belongs to, int64 (n,); only ``mm-aug`` needs it."""

CODE, CODE_WEIGHT = "code", "code_weight"
"""Columns of a device with a secret head: target codes (n, bits), and the weight alpha2 of their loss (n,)."""

INPUTS = ("x", "y", CODE, CODE_WEIGHT)
"""The columns that a model may read, in this order; the first two always exist."""


class PooledExamples(Mapping[str, Tensor]):
    """Examples that are rows ``index`` (n,) of a ``pool`` that many users share, with ``unshared`` columns (n, ...).

    A column of the pool is gathered when it is read, so that users with the same examples cost only an index each.
    """

    def __init__(self, pool: Examples, index: Tensor, unshared: Examples) -> None:
        self.pool, self.index, self.unshared = pool, index, unshared

    def __getitem__(self, name: str) -> Tensor:
        """Return one column (n, ...)."""
        if name in self.unshared:
            return self.unshared[name]
        column = self.pool[name]
        return column[self.index.to(column.device)]

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a column, without gathering it."""
        return name in self.unshared or name in self.pool

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the columns."""
        yield from (*self.pool, *self.unshared)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.pool) + len(self.unshared)

    def with_pool(self, pool: Examples) -> PooledExamples:
        """Return the same rows of another pool."""
        return PooledExamples(pool, self.index, self.unshared)


def columns(examples: Examples, names: Sequence[str]) -> Examples:
    """Return the columns of these names that exist; columns of a pool stay in it."""
    if isinstance(examples, PooledExamples):
        unshared = {name: examples.unshared[name] for name in names if name in examples.unshared}
        pool = {name: examples.pool[name] for name in names if name in examples.pool}
        return PooledExamples(pool, examples.index, unshared)
    return {name: examples[name] for name in names if name in examples}


def gathered(examples: Examples) -> dict[str, Tensor]:
    """Return the columns that a model may read; columns of a pool are copied out of it."""
    return dict(columns(examples, INPUTS))


def stack_rows(parts: Sequence[Examples], rows: Tensor) -> dict[str, Tensor]:
    """Return the columns that a model may read of k parts, (k, n, ...): those ``rows`` (k, n) of each part."""
    if parts[0]["y"].is_cuda:
        return _stack_rows_at_once(parts, rows)
    k, n = rows.shape
    stacked: dict[str, Tensor] = {}
    for name in (name for name in INPUTS if name in parts[0]):
        sources = [_source(part, name, index) for part, index in zip(parts, rows, strict=True)]
        first = sources[0][0]
        stacked[name] = torch.empty(k, n, *first.shape[1:], dtype=first.dtype, device=first.device)
        for row, (column, index) in zip(stacked[name], sources, strict=True):
            torch.index_select(column, 0, index, out=row)
    return stacked


def _stack_rows_at_once(parts: Sequence[Examples], rows: Tensor) -> dict[str, Tensor]:
    """Return what :func:`stack_rows` does with a launch or two for each column, where launches cost more than bytes."""
    lengths = torch.tensor([num_examples(part) for part in parts])
    at = rows + (lengths.cumsum(0) - lengths)[:, None]
    shared = pooled(parts)
    if shared is not None:
        index = torch.cat([part.index for part in shared])
        in_pool, pool = index[at.to(index.device)], shared[0].pool
    stacked: dict[str, Tensor] = {}
    for name in (name for name in INPUTS if name in parts[0]):
        if shared is not None and name not in shared[0].unshared:
            column, where = pool[name], in_pool
        else:
            column, where = torch.cat([part[name] for part in parts]), at
        taken = column.index_select(0, where.flatten().to(column.device))
        stacked[name] = taken.view(*rows.shape, *column.shape[1:])
    return stacked


def _source(examples: Examples, name: str, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return a column and the rows of it that are the rows ``index`` of ``examples``: a pool is not copied first."""
    if isinstance(examples, PooledExamples) and name not in examples.unshared:
        column = examples.pool[name]
        return column, examples.index[index.to(examples.index.device)].to(column.device)
    return examples[name], index


def pooled(parts: Sequence[Examples]) -> Sequence[PooledExamples] | None:
    """Return the parts if all of them are rows of one pool, else None."""
    with_pool = [part for part in parts if isinstance(part, PooledExamples)]
    if not with_pool or len(with_pool) < len(parts):
        return None
    pool = with_pool[0].pool
    return with_pool if all(_same(part.pool, pool) for part in with_pool) else None


def _same(a: Examples, b: Examples) -> bool:
    return a.keys() == b.keys() and all(a[name] is b[name] for name in a)


def num_examples(examples: Examples) -> int:
    """Return n. Raises FedprintError when there is no column or when the columns' lengths differ."""
    if isinstance(examples, PooledExamples):
        return len(examples.index)
    lengths = {column.shape[0] for column in examples.values()}
    if len(lengths) != 1:
        named = {name: len(column) for name, column in examples.items()}
        raise FedprintError(f"examples: every column needs the same length, got {named}")
    return lengths.pop()


def take(examples: Examples, index: Tensor | slice) -> Examples:
    """Return the rows ``index`` (int64 (k,), bool (n,) or a slice) of every column; rows of a pool stay in it."""
    if isinstance(examples, PooledExamples):
        unshared = {name: column[index] for name, column in examples.unshared.items()}
        return PooledExamples(examples.pool, examples.index[index], unshared)
    return {name: column[index] for name, column in examples.items()}


def concat(parts: Sequence[Examples]) -> Examples:
    """Return the parts one after the other. Raises FedprintError when there is no part or their columns differ."""
    if shared := pooled(parts):
        unshared = concat([part.unshared for part in shared])
        return PooledExamples(shared[0].pool, torch.cat([part.index for part in shared]), unshared)
    names = {frozenset(part) for part in parts}
    if len(names) != 1:
        raise FedprintError(f"examples: concat needs parts with the same columns, got {sorted(map(sorted, names))}")
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def equal(a: Examples, b: Examples) -> bool:
    """Return whether both have the same columns with the same types, shapes and values (NaN differs from NaN)."""
    same = a.keys() == b.keys()
    return same and all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


def as_input(x: Tensor) -> Tensor:
    """Return images as float32 in [0, 1], as models take them; token ids as they are."""
    if x.dtype == torch.uint8:
        return x.float() / 255
    return x.float() if x.is_floating_point() else x
