"""The Blog Authorship Corpus in its official layout, with the papers' filter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from fedprint.data.dataset import Dataset
from fedprint.data.examples import num_examples
from fedprint.data.formats.blog_files import fingerprint_files, read_corpus
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.official import Survey
from fedprint.data.formats.table import Table
from fedprint.data.sources.texts import TextSource, text_dataset
from fedprint.data.text import build_vocabulary
from fedprint.data.users import in_group, require, rows_by_user, texts_of


class BlogCorpus(TextSource):
    """``<data_dir>/blog_corpus/*.xml``: bloggers with at least 1000 posts (55 in the paper), posts split in sentences.

    ``users`` keeps the first of them by the bloggers' ids. Background: of the bloggers below the limit, the
    ``background_users`` with most posts; the vocabulary comes from them. ``t`` is the date of the post, ``album`` the
    post. Bloggers under 18 are never read, so there may be fewer than in the paper. The paper
    gives no ``length``.
    """

    published_users: ClassVar[int] = 55

    name: Literal["blog_corpus"] = "blog_corpus"
    users: int | None = Field(default=None, ge=1)
    min_posts: int = Field(default=1000, ge=3)
    background_users: int = Field(default=300, ge=1)
    max_sentences: int = Field(default=100_000, ge=3)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return a hash of the files' names and contents."""
        return fingerprint_files(find_folder(self.name, data_dir))

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the bloggers. The seed does not matter."""
        corpus = read_corpus(find_folder(self.name, data_dir), self.min_posts, self.background_users)
        return self._encode(corpus.table)

    def survey(self, data_dir: Path | None = None) -> Survey:
        """Return what would be loaded, in sentences."""
        corpus = read_corpus(find_folder(self.name, data_dir), self.min_posts, self.background_users)
        dataset = self._encode(corpus.table)
        sizes, background = ([num_examples(u.examples) for u in part] for part in (dataset.users, dataset.background))
        return Survey.of_sizes(
            sizes,
            background,
            corpus.left_out,
            name=self.name,
            licence=dataset.licence,
            users_in_the_paper=self.published_users,
            sha256=dataset.sha256,
        )

    def _encode(self, table: Table) -> Dataset:
        rows = rows_by_user(table)
        federated, public = in_group(table, rows, "federated"), in_group(table, rows, "background")
        require(federated, self.users or 1, table, "ask for fewer users or lower min_posts")
        words = build_vocabulary(texts_of(table, rows, public), self.vocabulary)
        users = self.encode(table, rows, federated[: self.users], words)
        dataset = text_dataset(table, users, self.encode(table, rows, public, words), words)
        return replace(dataset, name=self.name)
