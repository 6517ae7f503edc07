"""torchvision's image sets become folders of the format, from files that are there or from a download."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedprint.data.catalogue.fetch_images import LOADERS, SOURCES, fetch_images
from fedprint.data.sources.labelled_images import LabelledImages
from fedprint.types import FedprintError


class FakeLoader:
    """Stands in for torchvision: has its files only after a download, unless ``local``."""

    def __init__(self, make: Any, *, local: bool = True, reachable: bool = True) -> None:
        self.make, self.local, self.reachable, self.calls = make, local, reachable, list[tuple[bool, bool]]()

    def __call__(self, cache: Path, train: bool, download: bool) -> Any:
        self.calls.append((train, download))
        if download and not self.reachable:
            raise OSError("no\nroute to host")
        if not (self.local or download):
            raise RuntimeError("Dataset not found. You can use download=True")
        return self.make(20 if train else 8)


def grey(n: int) -> Any:
    """As torchvision's MNIST."""
    images = torch.arange(n, dtype=torch.uint8)[:, None, None].expand(n, 28, 28)
    return SimpleNamespace(data=images, targets=torch.arange(n) % 4, classes=["a", "b", "c", "d"])


def colour(n: int) -> Any:
    """As torchvision's CIFAR: channels last, a list of targets."""
    images = np.zeros((n, 32, 32, 3), np.uint8)
    images[..., 2] = np.arange(n)[:, None, None]
    return SimpleNamespace(data=images, targets=[i % 4 for i in range(n)], classes=["a", "b", "c", "d"])


def channels_first(n: int) -> Any:
    """As torchvision's SVHN: channels first, ``labels``, no names."""
    of = colour(n)
    return SimpleNamespace(data=of.data.transpose(0, 3, 1, 2), labels=np.array(of.targets))


@pytest.mark.parametrize("make", [grey, colour, channels_first])
def test_a_set_is_read_back_as_images_with_their_own_test_part(make: Any, tmp_path: Path) -> None:
    table = fetch_images("cifar10", tmp_path, {"cifar10": FakeLoader(make)})
    assert len(table) == 28 and table.sidecar.licence == SOURCES["cifar10"][1]
    images = LabelledImages(name="cifar10").load(tmp_path, 0)
    assert images.shape == ((1, 28, 28) if make is grey else (3, 32, 32))
    assert (len(images.y), len(images.test_y), len(images.class_names)) == (20, 8, 4)
    last = (255 * images.x[:, -1, 0, 0]).round().long()
    assert torch.equal(last % 4, images.y), "blue stays blue, and every image keeps its label"


def test_local_files_need_no_download_and_missing_ones_are_fetched(tmp_path: Path) -> None:
    local, remote = FakeLoader(grey), FakeLoader(grey, local=False)
    fetch_images("mnist", tmp_path, {"mnist": local})
    assert local.calls == [(True, False), (False, False)]
    fetch_images("mnist", tmp_path, {"mnist": remote})
    assert remote.calls == [(True, False), (True, True), (False, False), (False, True)]


def test_no_files_and_no_network_is_one_line(tmp_path: Path) -> None:
    loader = FakeLoader(grey, local=False, reachable=False)
    with pytest.raises(
        FedprintError, match=r"mnist: not in .*\.downloads, and the download failed \(no route to host\)"
    ):
        fetch_images("mnist", tmp_path, {"mnist": loader})
    with pytest.raises(FedprintError, match="'imagenet' is no image set that can be fetched; choose one of mnist"):
        fetch_images("imagenet", tmp_path)


def test_the_sets_of_the_paper_are_known() -> None:
    assert set(LOADERS) == set(SOURCES) == {"mnist", "fashion_mnist", "cifar10", "cifar100", "svhn"}
