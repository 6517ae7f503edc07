"""Your own users: a folder in the format of docs/data-format.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedprint.data.dataset import Dataset
from fedprint.data.formats.describe import data_sha256, validate
from fedprint.data.formats.locate import located
from fedprint.data.formats.table import Table, has_stars, role
from fedprint.data.sources.images import image_dataset
from fedprint.data.sources.texts import TextSource, joint_sha256, rating_dataset, text_dataset
from fedprint.data.text import build_vocabulary, token_ids
from fedprint.data.users import (
    Rows,
    document_rows,
    image_users,
    in_group,
    rating_users,
    require,
    rows_by_user,
    texts_of,
)
from fedprint.types import FedprintError


class Folder(TextSource):
    """A folder of the format at ``path`` (as given, else inside the data folder); columns decide the task.

    ``images`` with (n,) labels: single_label; with (n, classes): multi_label; else ``text`` with numbers ``stars``:
    regression (set ``length`` to that of a whole text); else ``text``: language_model. Users are
    the federated ones (all, without a column ``group``) with at least ``min_examples`` rows, the first ``users`` by id
    after ``skip``.
    Background: the users of group background, else ``background_users`` of the remaining ones, most rows first. A
    vocabulary is built from public text only: from the background, or from the text of another folder, ``public_text``.
    """

    name: Literal["folder"] = "folder"
    path: str
    users: int | None = Field(default=None, ge=1)
    skip: int = Field(default=0, ge=0)
    min_examples: int = Field(default=3, ge=3)
    background_users: int = Field(default=300, ge=0)
    public_text: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The folder, and that of the public text."""
        return tuple(path for path in (self.path, self.public_text) if path)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return the SHA-256 of the data file, and of that of ``public_text``."""
        return joint_sha256([data_sha256(located(path, data_dir)) for path in self.reads])

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the users. The seed does not matter."""
        table = validate(located(self.path, data_dir))
        rows = rows_by_user(table)
        chosen, others = self._choose(table, rows)
        if role(table.columns, "images"):
            attributes = {name: table.columns[name] for name in table.sidecar.attributes}
            users = image_users(table, rows, chosen, attributes)
            return image_dataset(table, users, image_users(table, rows, others, attributes))
        if role(table.columns, "text"):
            dataset = self._load_text(table, rows, chosen, others, data_dir)
            return replace(dataset, sha256=self.fingerprint(data_dir))
        raise FedprintError(f"{table.file}: neither 'images' nor 'text' among {sorted(table.columns)}; add one of them")

    def _choose(self, table: Table, rows: Rows) -> tuple[list[int], list[int]]:
        federated, public = in_group(table, rows, "federated"), in_group(table, rows, "background")
        fitting = [user for user in federated if len(rows[user]) >= self.min_examples]
        skipped, fitting = fitting[: self.skip], fitting[self.skip :]
        remedy = "ask for fewer users, skip fewer or bring more examples per user (3 or more)"
        require(fitting, self.users or 1, table, remedy)
        chosen = fitting[: self.users]
        others = public or [user for user in rows if user not in {*skipped, *chosen}]
        return chosen, sorted(others, key=lambda user: (-len(rows[user]), user))[: self.background_users]

    def _load_text(
        self, table: Table, rows: Rows, chosen: list[int], others: list[int], data_dir: Path | None
    ) -> Dataset:
        source, spare = table, {user: rows[user] for user in others}
        if self.public_text:
            source = validate(located(self.public_text, data_dir))
            spare = dict(document_rows(source, self.background_users, max(rows) + 1))
        words = build_vocabulary(texts_of(source, spare, spare), self.vocabulary)
        if not spare:
            raise FedprintError(
                f"{table.file}: no public text for the vocabulary; mark users background or set public_text"
            )
        if has_stars(table.columns):
            return self._rated(table, rows, (chosen, others), words)
        users = self.encode(table, rows, chosen, words)
        return text_dataset(table, users, self.encode(source, spare, list(spare), words), words)

    def _rated(self, table: Table, rows: Rows, groups: tuple[list[int], list[int]], words: tuple[str, ...]) -> Dataset:
        ids = token_ids(words)
        users, background = (
            rating_users(table, rows, group, ids, length=self.length, max_texts=self.max_sentences) for group in groups
        )
        return rating_dataset(table, users, background, words, _scale_of(table))


def _scale_of(table: Table) -> tuple[float, float]:
    """Return the declared scale of ``stars``, else the lowest and highest one there is."""
    stars = table.columns["stars"].astype(np.float32)
    low, high = table.sidecar.scale or (float(stars.min()), float(stars.max()))
    if not low < high:
        raise FedprintError(f"{table.file}: 'stars' is {low:g} in every row; declare scale in the sidecar")
    return low, high
