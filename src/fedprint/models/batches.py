"""Whole batches for Lightning: one index per batch instead of one per example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset


class ShuffledBatches(IterableDataset[dict[str, Tensor]]):
    """Columns (n, ...) cut into batches of ``size``, in a fresh order every epoch drawn from ``rng``."""

    def __init__(self, columns: Mapping[str, Tensor], size: int, rng: torch.Generator) -> None:
        self.columns, self.size, self.rng = columns, size, rng

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Yield the batches of one epoch."""
        n = len(next(iter(self.columns.values())))
        for index in torch.split(torch.randperm(n, generator=self.rng), self.size):
            yield {name: column[index] for name, column in self.columns.items()}

    def loader(self) -> DataLoader[dict[str, Tensor]]:
        """Return the loader that Lightning wants."""
        return DataLoader(self, batch_size=None)

    def whole_epochs(self) -> DataLoader[ShuffledBatches]:
        """Return a loader of these batches as one item, for modules that take their steps themselves."""
        return DataLoader([self], batch_size=None)  # type: ignore[arg-type]  # a list is a data set
