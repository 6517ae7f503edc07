"""Emoji drawings by designer, each with tags, a time and a caption."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedprint.data.dataset import Dataset
from fedprint.data.formats.describe import validate
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.table import Table
from fedprint.data.sources.images import TableSource, image_dataset
from fedprint.data.users import Rows, image_users, most_first, require, rows_by_user
from fedprint.types import FedprintError, User

CAPTIONS_FILE = "openmoji_captions.jsonl"


class OpenMoji(TableSource):
    """Drawings of one emoji set by designer, with label, time, album and caption; a stand-in for photo collections.

    Users: designers with at least ``min_examples`` drawings, most drawings first (ties by id), the first ``users`` of
    them after ``skip``, or all; background: every other designer, or the ``background_users`` of them with most
    drawings. ``skintone`` none leaves out the skin-tone variants, near duplicates of one another that a random split
    would put on both sides.
    ``target``: the drawing's tags (multi-label) that are on at least ``min_share`` of the users' drawings, or its group
    (single-label, 12 classes). ``size`` 32 averages 2 x 2 pixels.

    ``t`` is the day. Most designers' drawings bear one or two dates, and ties keep the set's order, which is by
    subject: for them the chrono prior is a split by subject rather than by time. An album is what a designer drew of
    one subgroup on one day. Attributes of a designer: ``group``, the most frequent group of the user's examples (ties:
    the lowest), and ``tone``, by the share of skin-tone variants in all of the designer's drawings, left out or not: 0
    for none, 1 for up to half, 2 for more.
    """

    name: Literal["openmoji"] = "openmoji"
    users: int | None = Field(default=None, ge=1)
    skip: int = Field(default=0, ge=0)
    min_examples: int = Field(default=20, ge=3)
    background_users: int | None = Field(default=None, ge=0)
    skintone: Literal["none", "all"] = "none"
    target: Literal["tags", "group"] = "tags"
    min_share: float = Field(default=0.0, ge=0, lt=1)
    size: Literal[64, 32] = 64

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the designers; ``x`` uint8 (n, 3, size, size), ``caption`` too. The seed does not matter."""
        whole = validate(find_folder(self.name, data_dir))
        table = self._drawings(whole)
        rows = rows_by_user(table)
        fitting = [user for user in most_first(rows, rows) if len(rows[user]) >= self.min_examples]
        skipped, fitting = fitting[: self.skip], fitting[self.skip :]
        require(fitting, self.users or 1, table, "ask for fewer users, skip fewer or lower min_examples")
        chosen = fitting[: self.users]
        table, names = self._labelled(table, np.concatenate([rows[user] for user in chosen]))
        attributes = {"group": favourite_groups(table, rows), "tone": tones(whole)}
        people = _with_attributes(image_users(table, rows, list(rows)), attributes)
        others = self._others(rows, {*skipped, *chosen})
        dataset = image_dataset(table, tuple(people[user] for user in chosen), tuple(people[user] for user in others))
        return replace(dataset, class_names=names)

    def _others(self, rows: Rows, taken: Collection[int]) -> list[int]:
        """Return the designers of the background by id."""
        others = [user for user in most_first(rows, rows) if user not in taken]
        return sorted(others[: self.background_users])

    def _drawings(self, table: Table) -> Table:
        """Return the rows that count, with the columns ``text`` and ``album`` added and the pictures of ``size``."""
        kept = np.flatnonzero((table.columns["skintone"] == 0) | (self.skintone == "all"))
        columns: dict[str, Any] = {**table.columns, "text": read_captions(table.folder / CAPTIONS_FILE, len(table))}
        columns = {name: column[kept] for name, column in columns.items()}
        parts = zip(columns["user"].tolist(), columns["time"].tolist(), columns["subgroup"].tolist(), strict=True)
        columns["album"] = np.array(["/".join(map(str, part)) for part in parts])
        columns["images"] = shrink(columns["images"], columns["images"].shape[1] // self.size)
        return replace(table, columns=columns)

    def _labelled(self, table: Table, users_rows: np.ndarray) -> tuple[Table, tuple[str, ...]]:
        """Return the table whose column ``labels`` is the target, and the names of its classes."""
        names = table.sidecar.class_names
        if not isinstance(names, Mapping):
            raise FedprintError(
                f"{table.file}: class_names must list the classes of group and tags; restore the sidecar"
            )
        if self.target == "group":
            return replace(table, columns={**table.columns, "labels": table.columns["group"]}), names["group"]
        labels = table.columns["labels"]
        kept = np.flatnonzero(labels[users_rows].mean(0) >= self.min_share)
        if not len(kept):
            raise FedprintError(
                f"{table.file}: no tag is on {self.min_share:.0%} of the drawings; lower data.min_share"
            )
        columns = {**table.columns, "labels": labels[:, kept]}
        return replace(table, columns=columns), tuple(names["tags"][index] for index in kept)


def read_captions(path: Path, n: int) -> np.ndarray:
    """Return the caption of each of ``n`` rows as strings (n,). Raises FedprintError unless each row has one."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        captions = {int(line["row"]): str(line["caption"]) for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FedprintError(f"{path}: not a file of captions ({error!r}); restore it beside the data") from error
    if captions.keys() != set(range(n)):
        raise FedprintError(
            f"{path}: captions of {len(captions)} rows for {n} drawings; give rows 0 to {n - 1} one each"
        )
    return np.array([captions[row] for row in range(n)])


def shrink(images: np.ndarray, factor: int) -> np.ndarray:
    """Return uint8 (n, h / factor, w / factor, 3): each pixel the rounded mean of ``factor`` x ``factor``."""
    if factor == 1:
        return images
    n, height, width, channels = images.shape
    blocks = images.reshape(n, height // factor, factor, width // factor, factor, channels)
    means: np.ndarray = np.rint(blocks.mean((2, 4))).astype(np.uint8)
    return means


def favourite_groups(table: Table, rows: Rows) -> Mapping[int, int]:
    """Return user -> the most frequent group of the user's rows, the lowest among equals."""
    return {user: int(np.bincount(table.columns["group"][index]).argmax()) for user, index in rows.items()}


def tones(table: Table) -> Mapping[int, int]:
    """Return user -> class of ``tone``: none, up to half, or more of the user's drawings are skin-tone variants."""
    share = {user: float(table.columns["skintone"][index].mean()) for user, index in rows_by_user(table).items()}
    return {user: int(value > 0) + int(value > 0.5) for user, value in share.items()}


def _with_attributes(users: Sequence[User], attributes: Mapping[str, Mapping[int, int]]) -> dict[int, User]:
    return {
        user.user_id: replace(user, attributes={name: of[user.user_id] for name, of in attributes.items()})
        for user in users
    }
