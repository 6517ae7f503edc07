"""Public image sets without users, through torchvision, as folders of docs/data-format.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedprint.data.formats.describe import write_table
from fedprint.data.formats.table import Table
from fedprint.types import FedprintError

Loader = Callable[[Path, bool, bool], Any]
"""(folder of the downloads, whether the training part, whether to download) -> torchvision's data set."""


def _by_train(kind: str) -> Loader:
    def load(cache: Path, train: bool, download: bool) -> Any:
        from torchvision import datasets

        return getattr(datasets, kind)(str(cache), train=train, download=download)

    return load


def _svhn(cache: Path, train: bool, download: bool) -> Any:
    from torchvision import datasets

    return datasets.SVHN(str(cache), split="train" if train else "test", download=download)


LOADERS: Mapping[str, Loader] = {
    "mnist": _by_train("MNIST"),
    "fashion_mnist": _by_train("FashionMNIST"),
    "cifar10": _by_train("CIFAR10"),
    "cifar100": _by_train("CIFAR100"),
    "svhn": _svhn,
}

SOURCES: Mapping[str, tuple[str, str]] = {
    "mnist": ("LeCun, Bottou, Bengio, Haffner (1998)", "commonly distributed as CC BY-SA 3.0 (LeCun/Cortes)"),
    "fashion_mnist": ("Xiao, Rasul, Vollgraf (2017) Fashion-MNIST", "MIT"),
    "cifar10": ("Krizhevsky (2009) Learning Multiple Layers of Features from Tiny Images", "none stated; research use"),
    "cifar100": (
        "Krizhevsky (2009) Learning Multiple Layers of Features from Tiny Images",
        "none stated; research use",
    ),
    "svhn": ("Netzer et al. (2011) Reading Digits in Natural Images", "non-commercial use"),
}
"""Citation and licence."""


def fetch_images(name: str, target: Path, loaders: Mapping[str, Loader] = LOADERS) -> Table:
    """Write ``<target>/<name>`` from torchvision's files in ``<target>/.downloads``, which are downloaded if missing.

    No network is needed where that folder already holds the files (of any version of torchvision). Raises FedprintError
    for an unknown set, and when the files are neither there nor can be downloaded.
    """
    if name not in loaders:
        raise FedprintError(f"'{name}' is no image set that can be fetched; choose one of {', '.join(loaders)}")
    parts = [_part(name, loaders[name], target / ".downloads", train) for train in (True, False)]
    columns = [_columns(part, split) for split, part in enumerate(parts)]
    citation, licence = SOURCES[name]
    header = {
        "title": name,
        "task": "image classification",
        "class_names": _class_names(parts[0], columns[0]["labels"]),
        "arrays_meaning": {"images": "uint8", "labels": "class", "split": "0 = training, 1 = test"},
        "licence": licence,
        "citation": [citation],
    }
    return write_table(target / name, {k: np.concatenate([c[k] for c in columns]) for k in columns[0]}, header)


def _part(name: str, loader: Loader, cache: Path, train: bool) -> Any:
    try:
        return loader(cache, train, False)
    except (OSError, RuntimeError):
        pass  # not downloaded yet
    try:
        return loader(cache, train, True)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise FedprintError(
            f"{name}: not in {cache}, and the download failed ({reason}); place torchvision's files there"
        ) from error


def _columns(part: Any, split: int) -> dict[str, np.ndarray]:
    """Return images (n, h, w) or (n, h, w, 3), labels and the part of one of torchvision's sets."""
    images = np.asarray(part.data)
    if images.ndim == 4 and images.shape[1] == 3:  # SVHN has its channels first
        images = images.transpose(0, 2, 3, 1)
    labels = np.asarray(part.targets if hasattr(part, "targets") else part.labels)
    return {
        "images": np.ascontiguousarray(images.astype(np.uint8)),
        "labels": labels.astype(np.uint8),
        "split": np.full(len(labels), split, dtype=np.uint8),
    }


def _class_names(part: Any, labels: np.ndarray) -> list[str]:
    return [str(name) for name in getattr(part, "classes", range(int(labels.max()) + 1))]
