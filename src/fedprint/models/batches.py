"""Whole batches for Lightning: one index per batch instead of one per example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset


class ShuffledBatches(IterableDataset[dict[str, Tensor]]):
    """Columns (n, ...) cut into batches of ``size``, in a fresh order every epoch drawn from ``rng``."""

    def __init__(self, columns: Mapping[str, Tensor], size: int, rng: torch.Generator) -> None:
        self.columns, self.size, self.rng = columns, size, rng

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Yield the batches of one epoch."""
        first = next(iter(self.columns.values()))
        order = torch.randperm(len(first), generator=self.rng).to(first.device)
        for index in torch.split(order, self.size):
            yield {name: column[index] for name, column in self.columns.items()}

    def to(self, device: torch.device) -> Self:
        """Move the columns to a device, where they stay, and return these batches: Lightning does so once a fit."""
        self.columns = {name: column.to(device) for name, column in self.columns.items()}
        return self

    def loader(self) -> DataLoader[dict[str, Tensor]]:
        """Return the loader that Lightning wants."""
        return DataLoader(self, batch_size=None)

    def whole_epochs(self) -> DataLoader[ShuffledBatches]:
        """Return a loader of these batches as one item, for modules that take their steps themselves."""
        return DataLoader([self], batch_size=None)  # type: ignore[arg-type]  # a list is a data set
