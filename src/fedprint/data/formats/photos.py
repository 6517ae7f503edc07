"""Photographs as files: their owners, what is on them, and their decoded pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from fedprint.types import FedprintError

CHANNELS = 3

_BROKEN = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)
_TURNS = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}
_EXIF, _TAKEN = 0x8769, 36867


@dataclass(frozen=True, kw_only=True)
class Photo:
    """A photograph that is not decoded yet; ``time`` orders its owner's photos, ``labels`` names what is on it.

    ``turn`` is counterclockwise in degrees; None leaves the orientation to the file's own EXIF tag.
    """

    path: Path
    album: str
    time: int
    labels: tuple[str, ...]
    turn: int | None = None


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Photos by author, ascending in time; ``left_out`` counts photos that were dropped, by reason."""

    photos: Mapping[str, Sequence[Photo]]
    left_out: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def frequent_labels(photos: Iterable[Photo], most: int, min_share: float) -> tuple[str, ...]:
    """Return the labels on more than ``min_share`` of the photos, the ``most`` frequent first, equals by name."""
    counts: Counter[str] = Counter()
    total = 0
    for photo in photos:
        total += 1
        counts.update(set(photo.labels))
    ranked = sorted(counts, key=lambda label: (-counts[label], label))
    return tuple(label for label in ranked if counts[label] > min_share * total)[:most]


def multi_hot(photos: Sequence[Photo], classes: Sequence[str]) -> np.ndarray:
    """Return float32 (n, classes): 1 where the class is among the photo's labels."""
    column_of = {name: index for index, name in enumerate(classes)}
    out = np.zeros((len(photos), len(classes)), dtype=np.float32)
    for row, photo in enumerate(photos):
        out[row, [column_of[label] for label in photo.labels if label in column_of]] = 1
    return out


def decode(photo: Photo, size: int) -> np.ndarray | None:
    """Return uint8 (3, size, size), upright and stretched to the square; None when the file is damaged."""
    try:
        with Image.open(photo.path) as image:
            # a JPEG can be decoded at half, a quarter or an eighth of its size, which saves most of the time
            image.draft("RGB", (2 * size, 2 * size))
            upright = ImageOps.exif_transpose(image) if photo.turn is None else turned(image, photo.turn)
            small = upright.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(small).transpose(2, 0, 1)
    except _BROKEN:
        return None


def turned(image: Image.Image, degrees: int) -> Image.Image:
    """Return the image turned counterclockwise by a multiple of 90 degrees."""
    return image.transpose(_TURNS[degrees]) if degrees in _TURNS else image


def time_taken(path: Path) -> int | None:
    """Return the EXIF time at which the photo was taken, as seconds since 1970; None where there is none."""
    try:
        with Image.open(path) as image:
            stamp = str(image.getexif().get_ifd(_EXIF).get(_TAKEN, ""))
        day, _, clock = stamp.strip("\x00 ").partition(" ")
        return int(np.datetime64(f"{day.replace(':', '-')}T{clock}", "s").astype(np.int64)) if clock else None
    except _BROKEN:
        return None


def check_memory(name: str, counts: Sequence[int], size: int, max_gb: float) -> None:
    """Refuse users of ``counts`` photos whose pixels would take more than ``max_gb`` (10^9 bytes).

    Raises FedprintError with the estimate and with the settings that would fit.
    """
    each, limit = CHANNELS * size * size, max_gb * 1e9
    total = sum(counts)
    if total * each <= limit:
        return
    smaller = int((limit / (CHANNELS * total)) ** 0.5)
    fewer = max(3, int(limit / (each * len(counts))))
    need = f"{total:,} photos of {size} px need {total * each / 1e9:.3g} GB, max_gb is {max_gb:g}"
    raise FedprintError(
        f"{name}: {need}; set data.max_examples={fewer} or data.size={smaller}, "
        "or raise data.max_gb (training holds four times that: its pixels are float32)"
    )
