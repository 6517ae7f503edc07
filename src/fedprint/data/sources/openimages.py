"""OpenImages in its official layout, by the Flickr author of each photo."""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from fedprint.data.formats.official import csv_rows, need
from fedprint.data.formats.photos import Collection, Photo, time_taken
from fedprint.data.sources.photo_collections import PhotoSource
from fedprint.types import FedprintError

IMAGE_LISTS = ("*image_ids_and_rotation.csv", "*images*with-rotation.csv", "images.csv")
LABEL_LISTS = ("*imagelabels*.csv", "labels.csv", "annotations-human.csv", "annotations-machine.csv")
CLASS_LISTS = ("*class-descriptions*.csv", "dict.csv")
"""Names of the three kinds of tables in the releases so far."""

_COLUMNS = ("ImageID", "OriginalURL", "OriginalLandingURL", "AuthorProfileURL", "Author")
_IN_URL = re.compile(r"/(\d+)_[0-9a-f]+(?:_\w+)?\.\w+")
_IN_PAGE = re.compile(r"/photos/[^/]+/(\d+)")


@dataclass(frozen=True, kw_only=True)
class _Listed:
    author: str
    upload: int | None
    turn: int


class OpenImages(PhotoSource):
    """``<data_dir>/openimages``: authors with at least 500 photos (327 in the paper), every photo its own album.

    Reads the tables of image ids, class descriptions and image labels (those of at least ``min_confidence``: 1 are
    the positives that people verified), and ``images/**/<ImageID>.jpg``. Authors are identified by their profile page.
    The paper's 18 classes are not published; ours are the most frequent, and photos with none of them do not count (the
    paper's chance level of 6.3 % means 1.13 of 18 labels per photo). ``t`` under ``order`` upload is Flickr's photo id,
    which ascends with the upload; under exif it is when the photo was taken, and photos without that are left out.
    ``rotate`` turns originals upright as the table says; switch it off for resized copies, which are already upright.
    """

    licence: ClassVar[str] = "OpenImages: annotations CC BY 4.0; photos listed as CC BY 2.0, to be verified for each"
    published_users: ClassVar[int] = 327
    has_time: ClassVar[bool] = True

    name: Literal["openimages"] = "openimages"
    min_photos: int = Field(default=500, ge=3)
    most_classes: int = Field(default=18, ge=1)
    min_share: float = Field(default=0, ge=0, lt=1)
    only_labelled: bool = True
    min_confidence: float = Field(default=1.0, gt=0, le=1)
    order: Literal["upload", "exif"] = "upload"
    rotate: bool = True

    def files(self, folder: Path) -> list[Path]:
        """Return the tables and all photos."""
        return [*sorted(folder.glob("*.csv")), *_image_files(folder).values()]

    def read(self, folder: Path) -> Collection:
        """Return the photos by author. Raises FedprintError that says what to place where."""
        need(folder / "images", "place the photos there as <ImageID>.jpg")
        tables = {kind: _tables(folder, kind) for kind in (IMAGE_LISTS, LABEL_LISTS, CLASS_LISTS)}
        files = _image_files(folder)
        listed, repeated = read_image_lists(tables[IMAGE_LISTS], files)
        labels = read_labels(tables[LABEL_LISTS], listed, self.min_confidence, read_classes(tables[CLASS_LISTS]))
        left_out = Counter({"lines of a photo listed before": repeated, "unlisted files": len(files) - len(listed)})
        by_author: dict[str, list[Photo]] = defaultdict(list)
        for image, about in listed.items():
            photo = self._photo(files[image], about, labels.get(image))
            if isinstance(photo, Photo):
                by_author[about.author].append(photo)
            else:
                left_out[photo] += 1
        photos = {
            author: sorted(taken, key=lambda photo: (photo.time, photo.album)) for author, taken in by_author.items()
        }
        return Collection(photos=photos, left_out=left_out)

    def _photo(self, path: Path, about: _Listed, labels: tuple[str, ...] | None) -> Photo | str:
        """Return the photo, or why it is left out."""
        if not about.author:
            return "photos without an author"
        if not labels:
            return "photos without a positive label"
        time = about.upload if self.order == "upload" else time_taken(path)
        if time is None:
            return "photos without a time"
        return Photo(path=path, album=path.stem, time=time, labels=labels, turn=about.turn if self.rotate else 0)


def read_image_lists(paths: list[Path], wanted: Mapping[str, object]) -> tuple[dict[str, _Listed], int]:
    """Return what the tables say of the images in ``wanted``, and how often one of them was listed again.

    The rows of other images are skipped as they are read: the complete table has nine million.
    """
    listed: dict[str, _Listed] = {}
    repeated = 0
    for path in paths:
        columns = (*_COLUMNS, "Rotation") if "rotation" in path.name else _COLUMNS
        for _, (image, url, page, profile, author, *rotation) in csv_rows(path, columns):
            if image not in wanted:
                continue
            if image in listed:
                repeated += 1
            else:
                who = profile.strip() or author.strip()
                listed[image] = _Listed(author=who, upload=flickr_id(url, page), turn=_degrees(rotation))
    return listed, repeated


def read_labels(
    paths: list[Path], wanted: Mapping[str, object], least: float, classes: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return image -> the names of its labels with a confidence of ``least`` or more, for the images in ``wanted``."""
    labels: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for line, (image, label, confidence) in csv_rows(path, ("ImageID", "LabelName", "Confidence")):
            if image not in wanted:
                continue
            try:
                positive = float(confidence) >= least
            except ValueError:
                raise FedprintError(f"{path}, line {line}: Confidence is '{confidence}'; give a number") from None
            if positive:
                labels[image].add(classes.get(label, label))
    return {image: tuple(sorted(names)) for image, names in labels.items()}


def read_classes(paths: list[Path]) -> dict[str, str]:
    """Return label (such as /m/02wbm) -> name (Food); older tables have no header, and a header is no label."""
    classes: dict[str, str] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                if len(row) != 2:
                    raise FedprintError(f"{path}, line {number}: {len(row)} fields; needs LabelName,DisplayName")
                if row[0].startswith("/"):
                    classes[row[0]] = row[1].strip()
    return classes


def flickr_id(url: str, page: str) -> int | None:
    """Return the photo's number on Flickr from the address of its file or of its page; numbers ascend with uploads."""
    match = _IN_URL.search(url) or _IN_PAGE.search(page)
    return int(match[1]) if match else None


def _degrees(rotation: list[str]) -> int:
    """Return the counterclockwise turn; nothing and nan (photos that Flickr had lost) are none."""
    try:
        return int(float(rotation[0])) % 360
    except (ValueError, IndexError):
        return 0


def _image_files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted((folder / "images").rglob("*.jpg"), reverse=True)}


def _tables(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    tables = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not tables:
        raise FedprintError(
            f"{folder}: no {' or '.join(patterns)}; place OpenImages' table there (docs/official-data.md)"
        )
    return tables
