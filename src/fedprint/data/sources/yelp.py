"""The Yelp Open Dataset in its official layout: reviews with stars by reviewer, read as a stream."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedprint.data.dataset import Dataset
from fedprint.data.formats.files import object_array
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.official import Survey, fingerprint_files, need
from fedprint.data.formats.table import Sidecar, Table
from fedprint.data.sources.reviews import ReviewSource
from fedprint.data.users import rows_by_user
from fedprint.types import FedprintError

FILE = "yelp_academic_dataset_review.json"

LICENCE = "Yelp Open Dataset: academic use under Yelp's terms; no redistribution of the data or of parts of it"


@dataclass(frozen=True, kw_only=True)
class _Reviews:
    """The kept reviews as a table, its users by group, and how many lines repeat a review."""

    table: Table
    users: Sequence[int]
    background: Sequence[int]
    repeated: int


class Yelp(ReviewSource):
    """``<data_dir>/yelp/yelp_academic_dataset_review.json``: reviewers with 500 reviews or more (118 in the paper).

    ``users`` keeps those with most reviews (ties by id). Background: of the reviewers below the limit, the
    ``background_users`` with most reviews; the vocabulary comes from them. A user's id is the reviewer's position among
    the sorted ids of those kept, ``t`` the date of a review, every review an album of its own. One pass counts, a
    second keeps the reviews of those who take part; a repeated review (the same review_id) counts once. The paper
    gives a mean of 180 words and no ``length``.
    """

    published_users: ClassVar[int] = 118

    name: Literal["yelp"] = "yelp"
    users: int | None = Field(default=None, ge=1)
    min_reviews: int = Field(default=500, ge=3)
    background_users: int = Field(default=300, ge=1)
    max_reviews: int = Field(default=10_000, ge=3)
    length: int = Field(default=200, ge=3)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return a hash of the file's name and size; it is not read."""
        folder = find_folder(self.name, data_dir)
        return fingerprint_files(folder, [_file(folder)])

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the reviewers. The seed does not matter."""
        reviews = self._read(data_dir)
        rows = rows_by_user(reviews.table)
        return self.encode(reviews.table, rows, reviews.users, reviews.background, reviews.background)

    def survey(self, data_dir: Path | None = None) -> Survey:
        """Return what would be loaded."""
        reviews = self._read(data_dir)
        rows = rows_by_user(reviews.table)
        sizes = [min(len(rows[user]), self.max_reviews) for user in reviews.users]
        return Survey.of_sizes(
            sizes,
            [len(rows[user]) for user in reviews.background],
            {"repeated reviews": reviews.repeated},
            name=self.name,
            licence=LICENCE,
            users_in_the_paper=self.published_users,
            sha256=reviews.table.sidecar.sha256,
        )

    def _read(self, data_dir: Path | None) -> _Reviews:
        path = _file(find_folder(self.name, data_dir))
        counts = Counter(review["user_id"] for _, review in read_reviews(path))
        ranked = sorted(counts, key=lambda user: (-counts[user], user))
        many = [user for user in ranked if counts[user] >= self.min_reviews]
        few = [user for user in ranked if 3 <= counts[user] < self.min_reviews][: self.background_users]
        kept, repeated = keep_reviews(path, {*many, *few})
        fitting = sorted(
            (user for user in many if len(kept[user]) >= self.min_reviews), key=lambda user: (-len(kept[user]), user)
        )
        self._require(fitting, few, path)
        chosen = fitting[: self.users]
        names = sorted({*chosen, *few})
        table = review_table(path, {user: kept[user] for user in names}, self.fingerprint(data_dir))
        number_of = {user: number for number, user in enumerate(names)}
        return _Reviews(
            table=table,
            users=[number_of[user] for user in sorted(chosen)],
            background=[number_of[user] for user in few],
            repeated=repeated,
        )

    def _require(self, fitting: Sequence[str], few: Sequence[str], path: Path) -> None:
        if len(fitting) < (self.users or 1):
            wanted = f", data.users is {self.users}" if self.users else ""
            raise FedprintError(
                f"{path}: {len(fitting)} reviewers have {self.min_reviews} reviews or more{wanted}; "
                "lower data.min_reviews" + (" or ask for fewer users" if wanted else "")
            )
        if not few:
            raise FedprintError(
                f"{path}: no reviewer is below data.min_reviews, and the vocabulary needs some; raise it"
            )


def read_reviews(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, review) one by one. Raises FedprintError naming the line that is no review."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                review = json.loads(line)
                if not all(isinstance(review[key], str) for key in ("review_id", "user_id", "text", "date")):
                    raise ValueError("review_id, user_id, text and date must be text")
            except (ValueError, KeyError, TypeError) as error:
                remedy = "unpack the official file again, or drop the line"
                raise FedprintError(f"{path}, line {number}: not a review ({error!r}); {remedy}") from error
            yield number, review


def keep_reviews(path: Path, users: set[str]) -> tuple[dict[str, list[tuple[int, float, str]]], int]:
    """Return user -> (seconds since 1970, stars, text) of the reviews of ``users``, and how many lines repeat one.

    Raises FedprintError naming the line whose stars are not within 1 to 5 or whose date cannot be read.
    """
    kept: dict[str, list[tuple[int, float, str]]] = {user: [] for user in users}
    seen: set[str] = set()
    repeated = 0
    for number, review in read_reviews(path):
        if review["user_id"] not in users:
            continue
        if review["review_id"] in seen:
            repeated += 1
            continue
        seen.add(review["review_id"])
        kept[review["user_id"]].append((*_rated(path, number, review), review["text"]))
    return kept, repeated


def review_table(path: Path, kept: Mapping[str, list[tuple[int, float, str]]], digest: str) -> Table:
    """Return the reviews as a table: user (the key's position), time, stars and text, in the file's order."""
    rows = [(number, *review) for number, reviews in enumerate(kept.values()) for review in reviews]
    user, time, stars, text = zip(*rows, strict=True)
    columns = {
        "user": np.array(user, dtype=np.int64),
        "time": np.array(time, dtype=np.int64),
        "stars": np.array(stars, dtype=np.float64),
        "text": object_array(text),
    }
    files = {"yelp.jsonl.gz": {"sha256": digest}}
    sidecar = Sidecar.model_validate({"name": "yelp", "licence": LICENCE, "files": files})
    return Table(name="yelp", columns=columns, sidecar=sidecar, folder=path.parent)


def _rated(path: Path, number: int, review: Mapping[str, Any]) -> tuple[int, float]:
    try:
        moment = datetime.fromisoformat(review["date"]).replace(tzinfo=UTC)
        stars = float(review["stars"])
    except (KeyError, ValueError, TypeError) as error:
        raise FedprintError(
            f"{path}, line {number}: date or stars cannot be read ({error!r}); correct the line"
        ) from error
    if not 1 <= stars <= 5:
        raise FedprintError(f"{path}, line {number}: stars are {stars:g}, not within 1 to 5; correct the line")
    return int(moment.timestamp()), stars


def _file(folder: Path) -> Path:
    return need(folder / FILE, "unpack the JSON part of the Yelp Open Dataset there")
