"""Users on disk between pipeline stages: one npz, equal users give equal bytes, nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from fedprint.data.dataset import Dataset, Task
from fedprint.data.examples import concat, num_examples
from fedprint.data.files import npz_bytes, read_arrays, write_atomic
from fedprint.types import FedprintError, User

_COLUMN = "column."


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What a :class:`~fedprint.data.dataset.Dataset` says besides its users."""

    name: str
    task: Task
    class_names: tuple[str, ...]
    has_time: bool
    shareable: bool
    licence: str
    sha256: str
    scale: tuple[float, float] | None = None


def meta_of(dataset: Dataset) -> Meta:
    """Return the header of a data set."""
    return Meta(**{name: getattr(dataset, name) for name in Meta.__dataclass_fields__})


def save_meta(folder: Path, meta: Meta) -> None:
    """Write ``meta.json`` atomically."""
    write_atomic(folder / "meta.json", json.dumps(asdict(meta), indent=1, ensure_ascii=False).encode() + b"\n")


def load_meta(folder: Path) -> Meta:
    """Return the header that :func:`save_meta` wrote. Raises FedprintError when it is missing or of another form."""
    path = folder / "meta.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        scale = values.get("scale") and tuple(map(float, values["scale"]))
        return Meta(**{**values, "class_names": tuple(values["class_names"]), "scale": scale})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FedprintError(f"{path}: cannot be read ({error}); run the stage that prepares the data again") from error


def save_users(folder: Path, users: Sequence[User]) -> None:
    """Write ``users.npz`` atomically: every column over all users, the offsets (users + 1,), ids and attributes.

    An empty sequence is allowed. Raises FedprintError when users differ in their columns.
    """
    columns = concat([user.examples for user in users]) if users else {}
    sizes = [num_examples(user.examples) for user in users]
    attributes = json.dumps([dict(user.attributes) for user in users], sort_keys=True)
    arrays: dict[str, np.ndarray] = {
        "user_id": np.array([user.user_id for user in users], dtype=np.int64),
        "offset": np.cumsum([0, *sizes], dtype=np.int64),
        "attributes": np.frombuffer(attributes.encode(), dtype=np.uint8),
        **{_COLUMN + name: columns[name].numpy() for name in sorted(columns)},
    }
    write_atomic(folder / "users.npz", npz_bytes(arrays))


def load_users(folder: Path) -> tuple[User, ...]:
    """Return the users that :func:`save_users` wrote; their tensors share memory. Raises FedprintError when broken."""
    path = folder / "users.npz"
    arrays = read_arrays(path)
    try:
        attributes = json.loads(arrays["attributes"].tobytes())
        columns = {name: torch.from_numpy(arrays[name]) for name in arrays if name.startswith(_COLUMN)}
        spans = pairwise(arrays["offset"].tolist())
        return tuple(
            User(
                user_id=user_id,
                examples={name.removeprefix(_COLUMN): column[start:stop] for name, column in columns.items()},
                attributes=named,
            )
            for user_id, (start, stop), named in zip(arrays["user_id"].tolist(), spans, attributes, strict=True)
        )
    except (KeyError, ValueError, TypeError) as error:
        raise FedprintError(f"{path}: not a file of users ({error}); run the stage that prepares them again") from error
