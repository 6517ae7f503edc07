"""A data set in numbers, pictures and sample texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fedprint.data.dataset import IGNORED, TEXT_TASKS, UNKNOWN, Dataset
from fedprint.data.formats.describe import validate
from fedprint.data.formats.locate import data_root, find_folder
from fedprint.data.formats.table import album_column, class_names_of, label_column, time_columns
from fedprint.data.text import decode
from fedprint.types import FedprintError, User

_GAP = 2


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A data set in numbers; counts are None where the data have no users."""

    name: str
    title: str
    licence: str
    shareable: bool
    examples: int
    users: int | None
    per_user: tuple[int, float, int] | None
    """Examples per user: minimum, median, maximum."""
    content: tuple[str, ...]
    label: str | None
    classes: tuple[str, ...]
    time: tuple[str, ...]
    album: str | None
    sha256: str


def list_datasets(data_dir: Path | None = None) -> tuple[str, ...]:
    """Return the names of the folders with a sidecar of their own name, sorted; empty without a data folder."""
    root = data_root(data_dir)
    folders = sorted(root.iterdir()) if root is not None and root.is_dir() else []
    return tuple(folder.name for folder in folders if (folder / f"{folder.name}.json").is_file())


def describe(name: str, data_dir: Path | None = None) -> Summary:
    """Return the numbers of ``<data_dir>/<name>`` after validating it. Raises FedprintError (one line)."""
    table = validate(find_folder(name, data_dir))
    columns, sidecar = table.columns, table.sidecar
    label = label_column(columns)
    sizes = np.unique(columns["user"], return_counts=True)[1] if "user" in columns else None
    return Summary(
        name=table.name,
        title=sidecar.title,
        licence=sidecar.licence,
        shareable=sidecar.shareable,
        examples=len(table),
        users=None if sizes is None else len(sizes),
        per_user=None if sizes is None else (int(sizes.min()), float(np.median(sizes)), int(sizes.max())),
        content=tuple(name for name in ("images", "text") if name in columns),
        label=label,
        classes=class_names_of(sidecar, label, columns[label]) if label else (),
        time=time_columns(columns),
        album=album_column(columns),
        sha256=sidecar.sha256,
    )


def contact_sheet(dataset: Dataset, users: int = 8, per_user: int = 14, zoom: int = 3) -> Image.Image:
    """Return a picture with one row per user, its photos evenly spaced in time.

    Raises FedprintError for text and for data whose sidecar does not say that samples may be shared.
    """
    _require_shareable(dataset)
    if dataset.task in TEXT_TASKS:
        raise FedprintError(f"data set '{dataset.name}' holds text; use sample_texts")
    rows = [_strip(user, per_user) for user in dataset.users[:users]]
    sheet = Image.fromarray(np.concatenate(rows))
    return sheet.resize((sheet.width * zoom, sheet.height * zoom), Image.Resampling.NEAREST)


def sample_texts(dataset: Dataset, users: int = 4, per_user: int = 3) -> dict[int, tuple[str, ...]]:
    """Return user id -> sentences, or texts with the rating before them; unknown words as an ellipsis.

    Raises FedprintError for images and for data whose sidecar does not say that samples may be shared.
    """
    _require_shareable(dataset)
    if dataset.task not in TEXT_TASKS:
        raise FedprintError(f"data set '{dataset.name}' holds images; use contact_sheet")
    return {
        user.user_id: tuple(_shown(dataset, user, index) for index in range(min(per_user, len(user.examples["y"]))))
        for user in dataset.users[:users]
    }


def _shown(dataset: Dataset, user: User, index: int) -> str:
    x, y = (user.examples[name][index].numpy() for name in ("x", "y"))
    if dataset.task == "language_model":
        return decode(y, dataset.class_names)
    words = np.where(x == UNKNOWN, IGNORED, x)[1:]  # the first is START
    return f"{y:.1f}: {decode(words, dataset.class_names)}"


def _require_shareable(dataset: Dataset) -> None:
    if not dataset.shareable:
        remedy = "look into its folder instead, or declare samples: shareable if everyone shown agrees"
        raise FedprintError(f"data set '{dataset.name}' is private, its samples are not shown; {remedy}")


def _strip(user: User, count: int) -> np.ndarray:
    """Return uint8 (h + gap, count * (w + gap), 3); fewer photos leave white space."""
    x = user.examples["x"]
    index = torch.linspace(0, len(x) - 1, min(count, len(x))).round().long()
    photos = x[index].expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    blank = np.full((count - len(photos), *photos.shape[1:]), 255, dtype=np.uint8)
    framed = np.pad(np.concatenate([photos, blank]), ((0, 0), (0, _GAP), (0, _GAP), (0, 0)), constant_values=255)
    return np.concatenate(list(framed), axis=1)
