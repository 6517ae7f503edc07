"""Images by writer: MNIST digits with NIST writer ids, and Arabic letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedprint.component import Component
from fedprint.data.dataset import Dataset, Task
from fedprint.data.formats.describe import data_sha256, validate
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.table import Table, class_names_of, label_column
from fedprint.data.users import image_users, most_first, require, rows_by_user, table_dataset
from fedprint.rng import numpy_rng
from fedprint.types import User

Selection = Literal["most_examples", "lowest_id", "random"]


class TableSource(Component):
    """A source that reads one folder of docs/data-format.md; the folder has the source's ``name``."""

    name: str

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return the SHA-256 of the data file."""
        return data_sha256(find_folder(self.name, data_dir))


class MnistWriters(TableSource):
    """All of MNIST by writer. ``t`` is the position on the writer's form; attribute ``series``: 0 census, 1 students.

    ``users`` of the writers with at least ``min_examples`` digits, after the ``skip`` with most digits (ties by id): by
    ``selection`` those with most digits, those with the lowest ids, or random ones. Background: of the remaining
    writers, the ``background_users`` with most digits after ``background_skip``.
    """

    name: Literal["mnist_writers"] = "mnist_writers"
    users: int = Field(default=100, ge=1)
    skip: int = Field(default=0, ge=0)
    selection: Selection = "most_examples"
    min_examples: int = Field(default=3, ge=3)
    background_users: int = Field(default=300, ge=0)
    background_skip: int = Field(default=0, ge=0)

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the writers; ``x`` uint8 (n, 1, 28, 28). The seed matters for ``random`` only."""
        table = validate(find_folder(self.name, data_dir))
        rows = rows_by_user(table)
        ranked = most_first(rows, rows)
        fitting = [user for user in ranked if len(rows[user]) >= self.min_examples]
        skipped, fitting = fitting[: self.skip], fitting[self.skip :]
        require(fitting, self.users, table, "ask for fewer users, skip fewer or lower min_examples")
        chosen = select(fitting, self.users, self.selection, seed)
        taken = {*skipped, *chosen}
        others = [user for user in ranked if user not in taken][self.background_skip :][: self.background_users]
        series = {"series": (table.columns["series"] > 1).astype(np.int64)} if "series" in table.columns else {}
        users = image_users(table, rows, chosen, series)
        return image_dataset(table, users, image_users(table, rows, others, series))


class AhcdWriters(TableSource):
    """Arabic letters: 28 letters, each written ten times by each of 60 writers; ``t`` is the repetition.

    Users are the first ``users`` writers by id after ``skip``. The background are the first ``background_users`` of
    those after them, or all of these, with their examples of the first ``background_letters`` letters.
    """

    name: Literal["ahcd_writers"] = "ahcd_writers"
    users: int = Field(default=60, ge=1)
    skip: int = Field(default=0, ge=0)
    background_users: int | None = Field(default=None, ge=0)
    background_letters: int = Field(default=28, ge=1, le=28)

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the writers; ``x`` uint8 (n, 1, 32, 32). The seed does not matter."""
        table = validate(find_folder(self.name, data_dir))
        timed = with_order(table, "repetition")
        rows = rows_by_user(timed)
        chosen = list(rows)[self.skip :]
        require(chosen, self.users, table, "ask for fewer users, or skip fewer")
        users = image_users(timed, rows, chosen[: self.users])
        known = timed.columns["labels"] < self.background_letters
        others = {user: rows[user][known[rows[user]]] for user in chosen[self.users :][: self.background_users]}
        return image_dataset(timed, users, image_users(timed, others, list(others)))


def select(ranked: Sequence[int], users: int, selection: Selection, seed: int) -> list[int]:
    """Return ``users`` of the ids in ``ranked`` (most examples first)."""
    if selection == "lowest_id":
        return sorted(ranked)[:users]
    if selection == "random":
        return sorted(numpy_rng(seed, "users").choice(sorted(ranked), size=users, replace=False).tolist())
    return list(ranked[:users])


def with_order(table: Table, name: str) -> Table:
    """Return the table with column ``name`` in the role ``order``."""
    columns = {**table.columns, "order": table.columns[name]}
    return Table(name=table.name, columns=columns, sidecar=table.sidecar, folder=table.folder)


def image_dataset(
    table: Table,
    users: tuple[User, ...],
    background: tuple[User, ...],
    *,
    test: tuple[User, ...] = (),
    name: str | None = None,
) -> Dataset:
    """Return the data set of an image table, by default under the table's name; the labels' shape gives the task."""
    label = label_column(table.columns) or "labels"
    values = table.columns[label]
    width = values.shape[1] if values.ndim == 2 else int(values.max()) + 1
    names = class_names_of(table.sidecar, label, values) or tuple(map(str, range(width)))
    task: Task = "multi_label" if values.ndim == 2 else "single_label"
    dataset = table_dataset(table, task, names, users, background)
    return replace(dataset, name=name or table.name, test=test)
