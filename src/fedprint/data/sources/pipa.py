"""People In Photo Albums (Zhang et al. 2015) in its official layout, by the Flickr author of each photo."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from fedprint.data.formats.coco import read_detections
from fedprint.data.formats.official import csv_rows, need
from fedprint.data.formats.photos import Collection, Photo
from fedprint.data.sources.photo_collections import PhotoSource
from fedprint.types import FedprintError

FOLDERS = ("leftover", "train", "val", "test")
"""Folders of photos, which are looked up by name: ``subset_id`` means different things in copies of the annotations."""

ATTRIBUTES: Mapping[str, int] = {"age": 5, "gender": 2, "glasses": 3, "hair_colour": 3, "hair_length": 5}
"""Attribute -> number of classes (papers.md, section 2.3)."""

_FIELDS = "photoset_id photo_id xmin ymin width height identity_id subset_id"


class Pipa(PhotoSource):
    """``<data_dir>/pipa``: authors with at least 100 photos (53 in the paper), ``album`` is the photoset, no time.

    Reads ``annotations/index.txt``, the photos, ``authors.csv`` or ``authors.json`` (photo -> author), and
    ``detections.json`` (COCO results format), of which those with at least ``min_score`` are labels: the 19 most
    frequent classes on more than 1 % of the photos (papers.md 2.1). ``attributes.csv``, where it exists, gives
    each author the class that is most frequent among the annotated people on the author's photos.
    """

    licence: ClassVar[str] = "PIPA: for non-commercial research; photos of people under their owners' terms, not ours"
    published_users: ClassVar[int] = 53
    has_time: ClassVar[bool] = False

    name: Literal["pipa"] = "pipa"
    min_score: float = Field(default=0.7, ge=0, le=1)

    def files(self, folder: Path) -> list[Path]:
        """Return the annotations, the user's files, and all photos."""
        listed = [folder / "annotations" / "index.txt", *folder.glob("*.csv"), *folder.glob("*.json")]
        return [path for path in listed if path.is_file()] + list(_photo_files(folder).values())

    def read(self, folder: Path) -> Collection:
        """Return the photos by author. Raises FedprintError that says what to place where."""
        index = need(folder / "annotations" / "index.txt", "place PIPA's annotations there")
        photosets, repeated = read_index(index)
        authors, labels = read_authors(folder), self._labels(folder, photosets)
        files = _photo_files(folder)
        by_author: dict[str, list[Photo]] = defaultdict(list)
        left_out = {"lines of a photo in another photoset too": repeated, "photos without a file": 0}
        left_out["photos without an author"] = 0
        for photo, photoset in sorted(photosets.items(), key=_album_order):
            path = files.get(f"{photoset}_{photo}.jpg")
            if path is None:
                left_out["photos without a file"] += 1
            elif photo not in authors:
                left_out["photos without an author"] += 1
            else:
                by_author[authors[photo]].append(Photo(path=path, album=photoset, time=0, labels=labels.get(photo, ())))
        attributes = read_attributes(folder / "attributes.csv", authors)
        return Collection(photos=by_author, left_out=left_out, attributes=attributes)

    def _labels(self, folder: Path, photosets: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        what = "run a detector of COCO classes over the photos and write its results there"
        path = need(folder / "detections.json", what)
        labels: dict[str, set[str]] = defaultdict(set)
        for image, category in read_detections(path, self.min_score):
            labels[photo_id(image)].add(category)
        if not labels.keys() & photosets.keys():
            raise FedprintError(
                f"{path}: none of its detections (score {self.min_score:g} or more) is of a photo in index.txt; "
                "image_id is the photo_id, or the photo's file name"
            )
        return {photo: tuple(sorted(names)) for photo, names in labels.items()}


def read_index(path: Path) -> tuple[dict[str, str], int]:
    """Return photo id -> photoset id, and the number of lines that put a photo into a second photoset.

    A line is a person: photoset_id photo_id xmin ymin width height identity_id subset_id. Raises FedprintError naming
    a line of another form.
    """
    photosets: dict[str, str] = {}
    repeated = 0
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != len(_FIELDS.split()) or not all(map(_is_number, fields)):
            raise FedprintError(f"{path}, line {number}: '{line[:60]}' is not '{_FIELDS}'; restore the official file")
        repeated += photosets.setdefault(fields[1], fields[0]) != fields[0]
    return photosets, repeated


def read_authors(folder: Path) -> dict[str, str]:
    """Return photo id -> author from ``authors.json`` (an object) or ``authors.csv`` (columns photo_id and author).

    Raises FedprintError when neither exists, when a photo has two authors, and for a file of another form.
    """
    if (folder / "authors.json").is_file():
        return _json_authors(folder / "authors.json")
    what = "write photo_id,author there: the Flickr owner of each photo, which PIPA itself does not hold"
    path = need(folder / "authors.csv", what)
    authors: dict[str, str] = {}
    for line, (photo, author) in csv_rows(path, ("photo_id", "author")):
        if author.strip() and authors.setdefault(photo_id(photo), author.strip()) != author.strip():
            raise FedprintError(f"{path}, line {line}: photo {photo} has a second author '{author}'; keep one of them")
    return authors


def read_attributes(path: Path, authors: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return author -> attribute -> class, the most frequent (then smallest) over the author's photos.

    The file has a column photo_id, and of :data:`ATTRIBUTES` one or more, as integers from 0 or empty; one line per
    annotated person. Without a file no author has attributes. Raises FedprintError naming the line of another value.
    """
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8-sig") as file:
        names = [name for name in file.readline().strip().split(",") if name in ATTRIBUTES]
    counts: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for line, (photo, *values) in csv_rows(path, ("photo_id", *names)):
        for name, value in zip(names, values, strict=True):
            if value and not (value.isdigit() and int(value) < ATTRIBUTES[name]):
                says = f"'{name}' is '{value}', a class is 0 to {ATTRIBUTES[name] - 1}, or empty"
                raise FedprintError(f"{path}, line {line}: {says}; correct it")
            if value and photo_id(photo) in authors:
                counts[authors[photo_id(photo)]][name][int(value)] += 1
    return {author: {name: _most(votes) for name, votes in by_name.items()} for author, by_name in counts.items()}


def photo_id(image: str) -> str:
    """Return the Flickr id of a photo named by it, or by ``<photoset_id>_<photo_id>``, with or without ``.jpg``."""
    return image.strip().removesuffix(".jpg").rpartition("_")[2]


def _json_authors(path: Path) -> dict[str, str]:
    try:
        authors = json.loads(path.read_bytes())
        return {photo_id(photo): str(author) for photo, author in authors.items() if author}
    except (ValueError, AttributeError) as error:
        raise FedprintError(f'{path}: cannot be read ({error}); write one object {{"photo_id": "author"}}') from error


def _photo_files(folder: Path) -> dict[str, Path]:
    return {path.name: path for part in FOLDERS for path in sorted((folder / part).glob("*.jpg"))}


def _album_order(entry: tuple[str, str]) -> tuple[int, str, int, str]:
    photo, photoset = entry
    return len(photoset), photoset, len(photo), photo


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _most(counts: Mapping[int, int]) -> int:
    return min(counts, key=lambda value: (-counts[value], value))
