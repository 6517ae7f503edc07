"""Images with one label each and without users, such as MNIST and CIFAR-10 in the spn paper (papers.md 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedprint.data.formats.describe import validate
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.table import Table, class_names_of, label_column
from fedprint.data.sources.images import TableSource
from fedprint.rng import numpy_rng
from fedprint.types import FedprintError

SPLIT = "split"
"""Column that marks the source's own test set: 0 training, 1 test."""


@dataclass(frozen=True, kw_only=True)
class LabelledSet:
    """Training and test images (n, c, h, w) in [0, 1], float32, with labels (n,)."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    class_names: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(c, h, w)."""
        channels, height, width = self.x.shape[1:]
        return channels, height, width


class LabelledImages(TableSource):
    """A folder ``name`` of docs/data-format.md with images, labels and ``split``; users, if any, are ignored.

    ``train`` and ``test`` images are drawn at random from each part (all, when there are fewer).
    """

    name: str
    train: int = Field(default=10_000, ge=1)
    test: int = Field(default=2_000, ge=1)

    def load(self, data_dir: Path | None, seed: int) -> LabelledSet:
        """Return the images; equal data, settings and seed give equal bits. Raises FedprintError without a column."""
        table = validate(find_folder(self.name, data_dir))
        label = label_column(table.columns)
        if "images" not in table.columns or SPLIT not in table.columns or label is None:
            known = ", ".join(sorted(table.columns))
            raise FedprintError(
                f"{table.file}: needs columns images, labels and {SPLIT}, has {known}; add what is missing"
            )
        values = table.columns[label]
        if values.ndim != 1:
            raise FedprintError(f"{table.file}: '{label}' holds several labels per image; choose images with one each")
        train, test = (_drawn(table, part, count, seed) for part, count in ((0, self.train), (1, self.test)))
        return LabelledSet(
            x=_pixels(table, train),
            y=torch.from_numpy(values[train].astype(np.int64)),
            test_x=_pixels(table, test),
            test_y=torch.from_numpy(values[test].astype(np.int64)),
            class_names=class_names_of(table.sidecar, label, values) or tuple(map(str, range(int(values.max()) + 1))),
        )


def _drawn(table: Table, part: int, count: int, seed: int) -> np.ndarray:
    rows = np.flatnonzero(table.columns[SPLIT] == part)
    if not len(rows):
        raise FedprintError(f"{table.file}: no row with {SPLIT} {part}; mark training images 0 and test images 1")
    return np.sort(numpy_rng(seed, "drawn", part).permutation(rows)[:count])


def _pixels(table: Table, rows: np.ndarray) -> Tensor:
    images = torch.from_numpy(table.columns["images"][rows])
    return (images[:, None] if images.dim() == 3 else images.permute(0, 3, 1, 2)).contiguous().float() / 255
