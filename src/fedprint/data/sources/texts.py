"""Text by author: blogs and presidential addresses, as next-word data with a vocabulary from public text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import Field

from fedprint.component import Component
from fedprint.data.dataset import Dataset
from fedprint.data.formats.blog_files import fingerprint_files, read_blog_files
from fedprint.data.formats.describe import data_sha256, validate
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.table import Table
from fedprint.data.text import build_vocabulary, token_ids
from fedprint.data.users import (
    Rows,
    document_rows,
    in_group,
    require,
    rows_by_user,
    table_dataset,
    text_users,
    texts_of,
)
from fedprint.types import User


class TextSource(Component):
    """Settings of every text source: sentences are cut at ``length`` tokens, ``vocabulary`` counts the special ids.

    Of more than ``max_sentences`` sentences of a user, evenly spaced ones are kept.
    """

    max_sentences: int = Field(default=400, ge=3)
    length: int = Field(default=16, ge=3)
    vocabulary: int = Field(default=5000, ge=4)

    def encode(self, table: Table, rows: Rows, chosen: Sequence[int], words: Sequence[str]) -> tuple[User, ...]:
        """Return ``chosen`` as users, with their sentences as ids of ``words``."""
        ids = token_ids(words)
        return text_users(table, rows, chosen, ids, length=self.length, max_sentences=self.max_sentences)


class Blog(TextSource):
    """The first ``users`` federated bloggers by id after ``skip``; ``t`` is the date of the post, ``album`` the post.

    Reads ``<data_dir>/blog`` in fedprint's format, or the corpus's own XML files when there is no ``blog.json``; of
    those, adults with at least ``min_posts`` posts. The vocabulary comes from all background bloggers, the first
    ``background_users`` of whom are the background.
    """

    name: Literal["blog"] = "blog"
    users: int = Field(default=60, ge=1)
    skip: int = Field(default=0, ge=0)
    background_users: int = Field(default=60, ge=0)
    min_posts: int = Field(default=60, ge=1)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return the SHA-256 of the data file, or a hash of the XML files' names and contents."""
        folder = find_folder(self.name, data_dir)
        return fingerprint_files(folder) if _has_xml(folder) else data_sha256(folder)

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the bloggers. The seed does not matter."""
        folder = find_folder(self.name, data_dir)
        table = read_blog_files(folder, self.min_posts) if _has_xml(folder) else validate(folder)
        rows = rows_by_user(table)
        federated, public = in_group(table, rows, "federated")[self.skip :], in_group(table, rows, "background")
        require(federated, self.users, table, "ask for fewer users, skip fewer or lower min_posts")
        require(public, 1, table, "the vocabulary needs users whose group is background")
        words = build_vocabulary(texts_of(table, rows, public), self.vocabulary)
        users = self.encode(table, rows, federated[: self.users], words)
        return text_dataset(table, users, self.encode(table, rows, public[: self.background_users], words), words)


class Presidents(TextSource):
    """US presidential addresses by speaker; ``t`` is the year, ``album`` the speech.

    Vocabulary and background come from the public data set ``background_text``, of whose documents
    ``background_users``, evenly spaced, count as users.
    """

    name: Literal["presidents"] = "presidents"
    background_users: int = Field(default=100, ge=0)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return a hash of both data files' SHA-256."""
        folders = [find_folder(name, data_dir) for name in (self.name, "background_text")]
        return joint_sha256([data_sha256(folder) for folder in folders])

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return all speakers. The seed does not matter."""
        table = validate(find_folder(self.name, data_dir))
        rows = rows_by_user(table)
        public = validate(find_folder("background_text", data_dir))
        words = build_vocabulary(public.columns["text"], self.vocabulary)
        users = self.encode(table, rows, list(rows), words)
        documents = document_rows(public, self.background_users, max(rows) + 1)
        background = self.encode(public, documents, list(documents), words)
        return text_dataset(
            table, users, background, words, joint_sha256([table.sidecar.sha256, public.sidecar.sha256])
        )


def text_dataset(
    table: Table,
    users: tuple[User, ...],
    background: tuple[User, ...],
    words: tuple[str, ...],
    digest: str | None = None,
) -> Dataset:
    """Return the language-model data set of a text table."""
    dataset = table_dataset(table, "language_model", words, users, background)
    return replace(dataset, sha256=digest or table.sidecar.sha256)


def rating_dataset(
    table: Table,
    users: tuple[User, ...],
    background: tuple[User, ...],
    words: tuple[str, ...],
    scale: tuple[float, float],
) -> Dataset:
    """Return the regression data set of a text table whose users hold ratings within ``scale`` (lowest, highest)."""
    return replace(text_dataset(table, users, background, words), task="regression", scale=scale)


def joint_sha256(digests: Sequence[str]) -> str:
    """Return one hash for several files; a single one stays as it is."""
    return digests[0] if len(digests) == 1 else sha256("".join(digests).encode()).hexdigest()


def _has_xml(folder: Path) -> bool:
    return not (folder / "blog.json").is_file() and any(folder.glob("*.xml"))
