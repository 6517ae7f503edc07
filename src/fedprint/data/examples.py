"""Helpers on :data:`~fedprint.types.Examples`: a mapping of columns whose first dimension is n."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedprint.types import Examples, FedprintError

CODE, CODE_WEIGHT = "code", "code_weight"
"""Columns of a device with a secret head: target codes (n, bits), and the weight alpha2 of their loss (n,)."""

INPUTS = ("x", "y", CODE, CODE_WEIGHT)
"""The columns that a model may read, in this order; the first two always exist."""


def num_examples(examples: Examples) -> int:
    """Return n. Raises FedprintError when there is no column or when the columns' lengths differ."""
    lengths = {name: len(column) for name, column in examples.items()}
    if len(set(lengths.values())) != 1:
        raise FedprintError(f"examples: every column needs the same length, got {lengths}")
    return next(iter(lengths.values()))


def take(examples: Examples, index: Tensor | slice) -> dict[str, Tensor]:
    """Return the rows ``index`` (int64 (k,), bool (n,) or a slice) of every column."""
    return {name: column[index] for name, column in examples.items()}


def concat(parts: Sequence[Examples]) -> dict[str, Tensor]:
    """Return the parts one after the other. Raises FedprintError when there is no part or their columns differ."""
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
