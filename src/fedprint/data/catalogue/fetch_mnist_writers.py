"""Building ``mnist_writers`` from the official sources: MNIST's pixels joined with QMNIST's extended labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from fedprint.data.formats.describe import write_table
from fedprint.data.formats.table import Table
from fedprint.types import FedprintError

_HEADER = {
    "title": "MNIST with real NIST writer ids",
    "description": "All 70,000 MNIST images in the original order (train, then test), joined by index with QMNIST.",
    "task": "image classification, 10 classes",
    "class_names": [str(digit) for digit in range(10)],
    "arrays_meaning": {
        "images": "28x28 grey uint8",
        "labels": "digit 0-9",
        "user": "NIST writer id",
        "order": "digit index for this writer = position on the form",
        "series": "NIST HSF series: 0, 1 = census employees, 4 = high-school students",
        "split": "0 = MNIST train, 1 = MNIST test",
    },
    "licence": "MNIST pixels: commonly distributed as CC BY-SA 3.0 (LeCun/Cortes); QMNIST labels: BSD-3-Clause",
    "citation": [
        "LeCun, Bottou, Bengio, Haffner (1998) Gradient-based learning applied to document recognition",
        "Yadav & Bottou (2019) Cold Case: The Lost MNIST Digits, NeurIPS",
    ],
}


class Digits(Protocol):
    """What is used of torchvision's MNIST and QMNIST: ``data`` uint8 (n, 28, 28), ``targets`` (n,) or (n, 8)."""

    data: Tensor
    targets: Tensor


def fetch_mnist_writers(target: Path) -> Table:
    """Download MNIST and QMNIST through torchvision and write ``<target>/mnist_writers``.

    The downloads stay in ``<target>/.downloads``. Raises FedprintError when a download fails.
    """
    from torchvision import datasets

    cache = str(target / ".downloads")
    try:
        mnist = [datasets.MNIST(cache, train=train, download=True) for train in (True, False)]
        qmnist = [datasets.QMNIST(cache, what, compat=False, download=True) for what in ("train", "test10k")]
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise FedprintError(f"mnist_writers: download failed ({reason}); check the network and try again") from error
    return write_mnist_writers(target, [*zip(mnist, qmnist, strict=True)])


def write_mnist_writers(target: Path, parts: list[tuple[Digits, Digits]]) -> Table:
    """Write ``<target>/mnist_writers`` from (MNIST, QMNIST) pairs: the train part, then the test part."""
    columns = [_part(pixels, extended, split) for split, (pixels, extended) in enumerate(parts)]
    joined = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    return write_table(target / "mnist_writers", joined, _HEADER)


def _part(mnist: Digits, qmnist: Digits, split: int) -> dict[str, np.ndarray]:
    """Return the columns of one part. Extended labels: class, series, writer, index for the writer, and four more."""
    extended: np.ndarray[Any, np.dtype[np.int64]] = qmnist.targets.numpy()[: len(mnist.data)].astype(np.int64)
    labels = mnist.targets.numpy().astype(np.uint8)
    differing = np.flatnonzero(extended[:, 0] != labels)
    if len(differing):
        raise FedprintError(
            f"mnist_writers: MNIST and QMNIST disagree on digit {differing[0]}; delete .downloads, fetch again"
        )
    return {
        "images": mnist.data.numpy().astype(np.uint8),
        "labels": labels,
        "user": extended[:, 2].astype(np.int32),
        "order": extended[:, 3].astype(np.int16),
        "series": extended[:, 1].astype(np.uint8),
        "split": np.full(len(labels), split, dtype=np.uint8),
    }
