"""The contract of data sets: a source is its own configuration, and loads itself (data/sources/registry.py)."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import torch

from fedprint.data.dataset import TEXT_TASKS, Dataset
from fedprint.data.examples import equal, num_examples
from fedprint.testing.component import ComponentContract


class SourceContract(ComponentContract):
    """A source returns the same users for the same seed; ``data_dir`` holds its files, if it has any."""

    data_dir: Path | None = None

    @cached_property
    def loaded(self) -> Dataset:
        """The data set of seed 0."""
        dataset: Dataset = self.component.load(self.data_dir, 0)
        return dataset

    def test_its_fingerprint_is_a_digest(self) -> None:
        """Cache keys hold it: 64 hexadecimal digits, equal for equal data."""
        digest = self.component.fingerprint(self.data_dir)
        assert len(digest) == 64 and set(digest) <= set("0123456789abcdef")
        assert digest == self.component.fingerprint(self.data_dir)

    def test_equal_seeds_give_equal_bits(self) -> None:
        """Nothing depends on what ran before."""
        again = self.component.load(self.data_dir, 0)
        pairs = zip((*self.loaded.users, *self.loaded.background), (*again.users, *again.background), strict=True)
        assert all(a.user_id == b.user_id and equal(a.examples, b.examples) for a, b in pairs)

    def test_users_differ_from_each_other_and_from_the_background(self) -> None:
        """A user id is one person."""
        ids = [user.user_id for user in (*self.loaded.users, *self.loaded.background)]
        assert self.loaded.users and len(set(ids)) == len(ids)

    def test_columns_are_those_of_the_task(self) -> None:
        """Types and shapes as :class:`fedprint.data.dataset.Dataset` says."""
        classes = len(self.loaded.class_names)
        for user in (*self.loaded.users, *self.loaded.background):
            columns, n = user.examples, num_examples(user.examples)
            x, y = columns["x"], columns["y"]
            assert n >= 1 and columns["t"].dtype == columns["album"].dtype == torch.int64
            assert (columns["t"].diff() >= 0).all(), "t must ascend"
            if self.loaded.task in TEXT_TASKS:
                assert x.dtype == torch.int64 and x.dim() == 2
            else:
                assert x.dtype == torch.uint8 and x.dim() == 4
            if self.loaded.task == "single_label":
                assert y.dtype == torch.int64 and y.shape == (n,) and y.min() >= 0 and y.max() < classes
            elif self.loaded.task == "multi_label":
                assert y.dtype == torch.float32 and y.shape == (n, classes)

    def test_it_says_what_the_data_are(self) -> None:
        """Reports and manifests show these."""
        assert self.loaded.name and self.loaded.licence and self.loaded.class_names
        assert isinstance(self.loaded.shareable, bool)
