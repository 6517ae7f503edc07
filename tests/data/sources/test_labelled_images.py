"""Images without users: their own test set stays apart, and a selection is the same everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedprint.data.formats.describe import write_table
from fedprint.data.sources.labelled_images import LabelledImages
from fedprint.types import FedprintError


def write(folder: Path, **changes: np.ndarray | None) -> None:
    n = 30
    columns: dict[str, np.ndarray | None] = {
        "images": (np.arange(n, dtype=np.uint8)[:, None, None] + np.zeros((n, 8, 8), np.uint8)),
        "labels": (np.arange(n) % 3).astype(np.uint8),
        "split": (np.arange(n) >= 20).astype(np.uint8),
        **changes,
    }
    write_table(folder, {k: v for k, v in columns.items() if v is not None}, {"licence": "CC0"})


def test_training_and_test_images_come_from_their_own_part(tmp_path: Path) -> None:
    write(tmp_path / "tiny")
    images = LabelledImages(name="tiny", train=12, test=50).load(tmp_path, 0)
    numbers = (255 * images.x[:, 0, 0, 0]).round().long()
    assert images.shape == (1, 8, 8) and len(images.y) == 12 and len(images.test_y) == 10
    assert bool((numbers < 20).all()) and torch.equal(images.y, numbers % 3)
    again, other = (LabelledImages(name="tiny", train=12).load(tmp_path, seed) for seed in (0, 1))
    assert torch.equal(again.x, images.x) and not torch.equal(other.x, images.x)


def test_a_table_without_a_test_part_is_refused_in_one_line(tmp_path: Path) -> None:
    write(tmp_path / "one", split=None)
    with pytest.raises(FedprintError, match="needs columns images, labels and split"):
        LabelledImages(name="one").load(tmp_path, 0)
    write(tmp_path / "two", split=np.zeros(30, np.uint8))
    with pytest.raises(FedprintError, match="no row with split 1"):
        LabelledImages(name="two").load(tmp_path, 0)


def test_real_images_have_their_published_shapes(data_dir: Path) -> None:
    for name, shape in (("cifar10", (3, 32, 32)), ("fashion_mnist", (1, 28, 28))):
        images = LabelledImages(name=name, train=50, test=20).load(data_dir, 0)
        assert images.shape == shape and len(images.class_names) == 10 and float(images.x.max()) <= 1
