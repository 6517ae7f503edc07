"""MNIST cut into shards of one digit each: clients that see two digits (client-dp, section 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedprint.component import Component
from fedprint.data.dataset import Dataset
from fedprint.data.formats.describe import data_sha256, validate
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.table import Table
from fedprint.data.sources.images import image_dataset
from fedprint.data.users import pooled_image_users
from fedprint.rng import numpy_rng
from fedprint.types import FedprintError


class MnistShards(Component):
    """MNIST's training images sorted by digit, in shards of ``examples``; ``clients`` / 2 users hold two each.

    A client of the paper is a device here, and a user owns two: each has ``examples`` images, half of the user's two
    shards, drawn at random by the split. (In the paper no two clients share shards.) When all shards are used they are
    used again, in another order. Users share one pool of images, so memory and disk grow by an index per client. The
    test set is MNIST's own, divided evenly among users. To choose settings without looking at it, set ``held_out``:
    then the test is the share ``held_out`` of the training images, drawn at random, which then no user has. Pixels:
    mnist_writers.
    """

    name: Literal["mnist_shards"] = "mnist_shards"
    clients: int = Field(default=100, ge=2, multiple_of=2)
    examples: int = Field(default=600, ge=2)
    held_out: float = Field(default=0.0, ge=0, lt=1)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return the SHA-256 of the data file of mnist_writers."""
        return data_sha256(find_folder("mnist_writers", data_dir))

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the users; ``x`` uint8 (n, 1, 28, 28). The seed assigns the shards."""
        table = validate(find_folder("mnist_writers", data_dir))
        train, test = (np.flatnonzero(table.columns["split"] == part) for part in (0, 1))
        if self.held_out:
            held = numpy_rng(seed, "shards", "held-out").permutation(train)[: round(self.held_out * len(train))]
            train, test = np.setdiff1d(train, held), held
        if len(train) < self.examples or len(test) < self.clients // 2:
            raise FedprintError(
                f"{table.file}: {len(train)} training and {len(test)} test images are too few for data.examples "
                f"{self.examples}, data.clients {self.clients} and data.held_out {self.held_out:g}; lower the first two"
            )
        plain = _anonymous(table)
        users = range(self.clients // 2)
        partition = dict(zip(users, self._deal(table.columns["labels"], train, seed), strict=True))
        dealt = np.array_split(numpy_rng(seed, "shards", "test").permutation(test), len(users))
        tests = dict(zip(users, dealt, strict=True))
        owned, held_out = (pooled_image_users(plain, rows, users) for rows in (partition, tests))
        return image_dataset(plain, owned, (), test=held_out, name=self.name)

    def _deal(self, labels: np.ndarray, train: np.ndarray, seed: int) -> list[np.ndarray]:
        """Return each user's rows (2 * examples,): two shards, all shards once before any comes again."""
        by_digit = train[np.argsort(labels[train], kind="stable")]
        shards = by_digit[: len(by_digit) // self.examples * self.examples].reshape(-1, self.examples)
        times = -(-self.clients // len(shards))
        order = np.concatenate([numpy_rng(seed, "shards", i).permutation(len(shards)) for i in range(times)])
        return [shards[pair].reshape(-1) for pair in order[: self.clients].reshape(-1, 2)]


def _anonymous(table: Table) -> Table:
    """Return the table without writers and their order: a user of shards is not a writer."""
    kept = {name: table.columns[name] for name in ("images", "labels")}
    return Table(name=table.name, columns=kept, sidecar=table.sidecar, folder=table.folder)
