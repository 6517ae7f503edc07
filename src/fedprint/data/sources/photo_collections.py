"""What the published photo collections have in common: authors with enough photos, and what is on the photos."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedprint.component import Component
from fedprint.data.dataset import Dataset
from fedprint.data.formats.locate import find_folder
from fedprint.data.formats.official import Survey, evenly, fingerprint_files
from fedprint.data.formats.photos import CHANNELS, Collection, Photo, check_memory, decode, frequent_labels, multi_hot
from fedprint.types import FedprintError, User

_SHOWN, _FEWEST = 3, 3


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The photos of users and of background users, by user id; ``classes`` are the labels to learn."""

    users: Mapping[int, Sequence[Photo]]
    background: Mapping[int, Sequence[Photo]]
    classes: tuple[str, ...]
    names: Mapping[int, str]
    left_out: Mapping[str, int]


class PhotoSource(Component):
    """Authors with at least ``min_photos`` photos; ``users`` keeps those with most photos (ties by name).

    A user's id is the author's position among all authors' sorted names. Background: of the other authors with three or
    more photos, the ``background_users`` with most. ``classes`` are the labels to learn. Without them they are the
    ``most_classes`` most frequent labels that are on more than ``min_share`` of the photos of all authors with enough
    photos. With ``only_labelled`` photos without any of the classes do not count. Of more than ``max_examples`` photos
    of a user evenly spaced ones are kept. Pixels are uint8 (n, 3, size, size) in memory: a load of more than ``max_gb``
    GB is refused before it starts. ``damaged`` files end the load after all were tried, or are left out.
    """

    licence: ClassVar[str]
    published_users: ClassVar[int]
    has_time: ClassVar[bool]

    name: str
    users: int | None = Field(default=None, ge=1)
    min_photos: int = Field(default=100, ge=3)
    background_users: int = Field(default=100, ge=0)
    classes: tuple[str, ...] | None = None
    most_classes: int = Field(default=19, ge=1)
    min_share: float = Field(default=0.01, ge=0, lt=1)
    only_labelled: bool = False
    max_examples: int | None = Field(default=None, ge=3)
    size: int = Field(default=224, ge=8)
    max_gb: float = Field(default=2.0, gt=0)
    damaged: Literal["refuse", "leave_out"] = "refuse"

    @abstractmethod
    def files(self, folder: Path) -> list[Path]:
        """Return all files that the reader may use."""

    @abstractmethod
    def read(self, folder: Path) -> Collection:
        """Return the photos by author, not opened. Raises FedprintError that says what to place where."""

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return a hash of all files' names and sizes; no photo is read."""
        folder = find_folder(self.name, data_dir)
        return fingerprint_files(folder, self.files(folder))

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the authors; ``x`` uint8 (n, 3, size, size), ``y`` float32 (n, classes). The seed does not matter."""
        folder = find_folder(self.name, data_dir)
        collection = self.read(folder)
        selected = self.select(collection, folder)
        everyone = {**selected.users, **selected.background}
        check_memory(self.name, [len(photos) for photos in everyone.values()], self.size, self.max_gb)
        people = self._decode(everyone, selected, collection)
        return Dataset(
            name=self.name,
            task="multi_label",
            users=tuple(people[user] for user in selected.users if user in people),
            background=tuple(people[user] for user in selected.background if user in people),
            class_names=selected.classes,
            has_time=self.has_time,
            shareable=False,
            licence=self.licence,
            sha256=self.fingerprint(data_dir),
        )

    def survey(self, data_dir: Path | None = None) -> Survey:
        """Return what would be loaded, without opening a photo."""
        folder = find_folder(self.name, data_dir)
        selected = self.select(self.read(folder), folder)
        sizes = [len(photos) for photos in selected.users.values()]
        return Survey.of_sizes(
            sizes,
            [len(photos) for photos in selected.background.values()],
            selected.left_out,
            name=self.name,
            licence=self.licence,
            users_in_the_paper=self.published_users,
            classes=selected.classes,
            sha256=self.fingerprint(data_dir),
        )

    def select(self, collection: Collection, folder: Path) -> Selected:
        """Apply the filters. Raises FedprintError when too few authors or no class are left."""
        photos = collection.photos
        many = [photo for taken in photos.values() if len(taken) >= self.min_photos for photo in taken]
        classes = self._classes(collection, many, folder)
        if self.only_labelled:
            photos = {author: _on(taken, classes) for author, taken in photos.items()}
        dropped = sum(map(len, collection.photos.values())) - sum(map(len, photos.values()))
        names = dict(enumerate(sorted(photos)))
        ranked = sorted(names, key=lambda user: (-len(photos[names[user]]), user))
        chosen = [user for user in ranked if len(photos[names[user]]) >= self.min_photos][: self.users]
        self._require(chosen, folder)
        self._require_attributes([names[user] for user in chosen], collection, folder)
        others = [user for user in ranked if user not in set(chosen) and len(photos[names[user]]) >= _FEWEST]
        return Selected(
            users={user: self._some(photos[names[user]]) for user in sorted(chosen)},
            background={user: self._some(photos[names[user]]) for user in others[: self.background_users]},
            classes=classes,
            names=names,
            left_out={**collection.left_out, "photos with none of the classes": dropped},
        )

    def _classes(self, collection: Collection, many: Sequence[Photo], folder: Path) -> tuple[str, ...]:
        if self.classes is None:
            frequent = frequent_labels(many, self.most_classes, self.min_share)
            if not frequent and many:
                share = f"more than {self.min_share:.0%} of the photos"
                raise FedprintError(f"{folder}: no label is on {share}; lower data.min_share or name data.classes")
            return frequent
        known = {label for taken in collection.photos.values() for photo in taken for label in photo.labels}
        for name in self.classes:
            if name not in known:
                raise FedprintError(f"{folder}: no photo has the label '{name}' of data.classes; correct or drop it")
        return self.classes

    def _require(self, chosen: Sequence[int], folder: Path) -> None:
        if len(chosen) < (self.users or 1):
            wanted = f", data.users is {self.users}" if self.users else ""
            remedy = "bring more photos, lower data.min_photos" + (" or ask for fewer users" if wanted else "")
            raise FedprintError(
                f"{folder}: {len(chosen)} authors have {self.min_photos} usable photos or more{wanted}; {remedy}"
            )

    def _require_attributes(self, authors: Sequence[str], collection: Collection, folder: Path) -> None:
        known = {name for values in collection.attributes.values() for name in values}
        for author in authors:
            missing = sorted(known - collection.attributes.get(author, {}).keys())
            if missing:
                remedy = "annotate one of the author's photos or drop the column"
                raise FedprintError(f"{folder}: author '{author}' has no '{missing[0]}' in attributes.csv; {remedy}")

    def _some(self, photos: Sequence[Photo]) -> list[Photo]:
        return [photos[index] for index in evenly(len(photos), self.max_examples)]

    def _decode(
        self, people: Mapping[int, Sequence[Photo]], selected: Selected, collection: Collection
    ) -> dict[int, User]:
        names = sorted({photo.album for photos in people.values() for photo in photos})
        albums = {name: number for number, name in enumerate(names)}
        users: dict[int, User] = {}
        damaged: list[Path] = []
        for user, photos in people.items():
            x, intact = _pixels(photos, self.size)
            damaged += [photo.path for photo, fine in zip(photos, intact, strict=True) if not fine]
            kept = [photo for photo, fine in zip(photos, intact, strict=True) if fine]
            if len(kept) >= _FEWEST:
                examples = {"x": torch.from_numpy(x), **self._columns(kept, albums, selected.classes)}
                attributes = collection.attributes.get(selected.names[user], {})
                users[user] = User(user_id=user, examples=examples, attributes=attributes)
        if damaged and self.damaged == "refuse":
            shown = ", ".join(map(str, damaged[:_SHOWN]))
            remedy = "delete or replace them, or set data.damaged=leave_out"
            raise FedprintError(f"{self.name}: {len(damaged)} photos cannot be decoded ({shown}); {remedy}")
        return users

    def _columns(self, photos: Sequence[Photo], albums: Mapping[str, int], classes: Sequence[str]) -> dict[str, Tensor]:
        t = [photo.time for photo in photos] if self.has_time else range(len(photos))
        return {
            "y": torch.from_numpy(multi_hot(photos, classes)),
            "t": torch.tensor(t, dtype=torch.int64),
            "album": torch.tensor([albums[photo.album] for photo in photos], dtype=torch.int64),
        }


def _on(photos: Sequence[Photo], classes: Sequence[str]) -> list[Photo]:
    wanted = set(classes)
    return [photo for photo in photos if not wanted.isdisjoint(photo.labels)]


def _pixels(photos: Sequence[Photo], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return uint8 (intact, 3, size, size) of the intact photos, and which of them are (n,)."""
    out = np.empty((len(photos), CHANNELS, size, size), dtype=np.uint8)
    intact = np.zeros(len(photos), dtype=bool)
    for row, photo in enumerate(photos):
        pixels = decode(photo, size)
        if pixels is not None:
            out[row], intact[row] = pixels, True
    return (out if intact.all() else out[intact]), intact
