"""Examples of interest from a file, for a profile of users that no label describes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedprint.data.dataset import Task
from fedprint.data.formats.describe import validate
from fedprint.data.formats.locate import data_root
from fedprint.data.formats.table import Table
from fedprint.data.sources.images import image_dataset
from fedprint.data.text import encode_sentences, token_ids
from fedprint.data.users import image_users
from fedprint.types import Examples, FedprintError


def read_query(path: str, class_names: tuple[str, ...], task: Task, shape: tuple[int, ...]) -> Examples:
    """Return ``x`` (n, *shape) and ``y`` as the data set has them, from a text file or a folder of docs/data-format.md.

    ``path`` is taken as given, else inside the data folder. Images must have the data set's classes and size. Raises
    FedprintError.
    """
    source = _find(path)
    if source.is_dir():
        table = validate(source)
        if "images" in table.columns:
            return _images(table, class_names, shape)
        texts = [str(text) for text in table.columns.get("text", [])]
    else:
        texts = source.read_text(encoding="utf-8").splitlines()
    if task != "language_model":
        raise FedprintError(f"{source}: texts are a query of a language model only; name labels instead")
    x, y, _ = encode_sentences(texts, token_ids(class_names), length=shape[0])
    return {"x": torch.from_numpy(x), "y": torch.from_numpy(y)}


def _find(path: str) -> Path:
    root = data_root(None)
    candidates = [Path(path), *([root / path] if root else [])]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise FedprintError(f"profile: no file or folder {' or '.join(map(str, candidates))}; give a path or name labels")


def _images(table: Table, class_names: tuple[str, ...], shape: tuple[int, ...]) -> Examples:
    (user,) = image_users(table, {0: np.arange(len(table.columns["images"]))}, [0])
    x, y = user.examples["x"], user.examples["y"]
    names = image_dataset(table, (user,), ()).class_names
    if tuple(x.shape[1:]) != shape or names != class_names:
        raise FedprintError(
            f"{table.file}: images {tuple(x.shape[1:])} of classes {', '.join(names[:5])}..., the data set has {shape} "
            f"and {', '.join(class_names[:5])}...; use images like its"
        )
    return {"x": x, "y": y}
