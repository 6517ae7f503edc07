"""Reviews by author: a model predicts the stars from the text; the vocabulary comes from other people's reviews."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedprint.component import Component
from fedprint.data.dataset import Dataset
from fedprint.data.formats.describe import data_sha256, validate
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.table import Table
from fedprint.data.sources.texts import rating_dataset
from fedprint.data.text import build_vocabulary, token_ids
from fedprint.data.users import Rows, in_group, most_first, rating_users, require, rows_by_user, texts_of
from fedprint.types import User

PAPER_SCALE = (1.0, 5.0)
"""Stars as the papers rate (papers.md 2.1)."""


class ReviewSource(Component):
    """Settings of every source of reviews: whole reviews are cut at ``length`` token ids.

    ``vocabulary`` counts the special ids. Of more than ``max_reviews`` of a user, evenly spaced ones are kept.
    """

    max_reviews: int = Field(default=400, ge=3)
    length: int = Field(default=64, ge=3)
    vocabulary: int = Field(default=1000, ge=4)

    def encode(
        self, table: Table, rows: Rows, chosen: Sequence[int], others: Sequence[int], public: Sequence[int]
    ) -> Dataset:
        """Return ``chosen`` as users and ``others`` as background; the words come from the texts of ``public``.

        ``table`` has the columns ``text`` and ``stars``, the latter on the scale of the papers.
        """
        require(public, 1, table, "the vocabulary needs users whose group is background")
        words = build_vocabulary(texts_of(table, rows, public), self.vocabulary)
        ids, limits = token_ids(words), {"length": self.length, "max_texts": self.max_reviews}
        users = rating_users(table, rows, chosen, ids, **limits)
        return rating_dataset(table, users, rating_users(table, rows, others, ids, **limits), words, PAPER_SCALE)


class RateBeer(ReviewSource):
    """Beer reviews by author; ``t`` is the order of writing, every review an album of its own.

    The ``users`` federated reviewers with most reviews (ties by id) after ``skip``, with ``english_only`` those who
    write English. The site's scores of .5 to 5 are mapped linearly to the papers' [1, 5]: an error there counts 8/9
    here. The vocabulary comes from all background reviewers; the ``background_users`` with most reviews are the
    background. Attribute
    ``style``: the style that a user reviewed most, as its rank (0..) among the ``styles`` styles that the users review
    most, or ``styles`` for any other.
    """

    name: Literal["ratebeer"] = "ratebeer"
    users: int = Field(default=118, ge=1)
    skip: int = Field(default=0, ge=0)
    english_only: bool = False
    background_users: int = Field(default=300, ge=0)
    styles: int = Field(default=4, ge=1)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return the SHA-256 of the data file."""
        return data_sha256(find_folder(self.name, data_dir))

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the reviewers. The seed does not matter."""
        table = rescaled(validate(find_folder(self.name, data_dir)), (0.5, 5.0))
        rows = self._speakers(table, rows_by_user(table))
        ranked, public = (most_first(rows, in_group(table, rows, group)) for group in ("federated", "background"))
        fitting = [user for user in ranked if len(rows[user]) >= 3][self.skip :]
        require(fitting, self.users, table, "ask for fewer users, or skip fewer")
        chosen = fitting[: self.users]
        dataset = self.encode(table, rows, chosen, public[: self.background_users], public)
        style = favourites(table.columns["style"], rows, chosen, self.styles)
        return replace(dataset, users=tuple(_with_style(user, style[user.user_id]) for user in dataset.users))

    def _speakers(self, table: Table, rows: Rows) -> Rows:
        if not self.english_only:
            return rows
        return {user: index for user, index in rows.items() if table.columns["english_user"][index[0]]}


def rescaled(table: Table, scale: tuple[float, float]) -> Table:
    """Return the table with ``stars`` (n,) mapped linearly from ``scale`` (lowest, highest) to the papers'."""
    (low, high), (bottom, top) = scale, PAPER_SCALE
    stars = bottom + (table.columns["stars"].astype(np.float64) - low) * (top - bottom) / (high - low)
    return replace(table, columns={**table.columns, "stars": stars})


def favourites(values: np.ndarray, rows: Rows, users: Sequence[int], classes: int) -> Mapping[int, int]:
    """Return user -> class of the value that is most frequent in the user's rows; ties go to the alphabet.

    ``values`` (n,) is text per row. Classes are the ranks of the ``classes`` values most frequent in all users' rows;
    any other value is class ``classes``.
    """
    counts = {user: Counter(map(str, values[rows[user]])) for user in users}
    ranked = _by_count(sum(counts.values(), Counter()))[:classes]
    rank = {value: index for index, value in enumerate(ranked)}
    return {user: rank.get(_by_count(of_user)[0], classes) for user, of_user in counts.items()}


def _by_count(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda value: (-counts[value], value))


def _with_style(user: User, style: int) -> User:
    return replace(user, attributes={**user.attributes, "style": style})
