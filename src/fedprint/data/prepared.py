"""Users on disk between pipeline stages: one npz, equal users give equal bytes, nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from fedprint.data.dataset import Dataset, Meta
from fedprint.data.examples import PooledExamples, concat, num_examples
from fedprint.data.formats.files import npz_bytes, read_arrays, write_atomic
from fedprint.types import Examples, FedprintError, User

_COLUMN = "column."
_POOL, _ROWS = "pool.", "rows"


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

    Where all users share a pool, the examples in use are written once, and ``rows`` are the positions of each user's
    examples among them. An empty sequence is allowed. Raises FedprintError when users differ in their columns.
    """
    whole = concat([user.examples for user in users]) if users else {}
    sizes = [num_examples(user.examples) for user in users]
    attributes = json.dumps([dict(user.attributes) for user in users], sort_keys=True)
    arrays: dict[str, np.ndarray] = {
        "user_id": np.array([user.user_id for user in users], dtype=np.int64),
        "offset": np.cumsum([0, *sizes], dtype=np.int64),
        "attributes": np.frombuffer(attributes.encode(), dtype=np.uint8),
        **(_pool_arrays(whole) if isinstance(whole, PooledExamples) else _arrays(_COLUMN, whole)),
    }
    write_atomic(folder / "users.npz", npz_bytes(arrays))


def _pool_arrays(examples: PooledExamples) -> dict[str, np.ndarray]:
    used, rows = np.unique(examples.index.numpy(), return_inverse=True)
    pool = {name: column[torch.from_numpy(used)] for name, column in examples.pool.items()}
    return {**_arrays(_POOL, pool), _ROWS: rows.astype(np.int64), **_arrays(_COLUMN, examples.unshared)}


def _arrays(prefix: str, columns: Examples) -> dict[str, np.ndarray]:
    return {prefix + name: columns[name].numpy() for name in sorted(columns)}


def load_users(folder: Path) -> tuple[User, ...]:
    """Return the users that :func:`save_users` wrote; their tensors share memory. Raises FedprintError when broken."""
    path = folder / "users.npz"
    arrays = read_arrays(path)
    try:
        attributes = json.loads(arrays["attributes"].tobytes())
        columns = _tensors(arrays, _COLUMN)
        pool = _tensors(arrays, _POOL)
        rows = torch.from_numpy(arrays[_ROWS]) if pool else None
        spans = pairwise(arrays["offset"].tolist())
        return tuple(
            User(user_id=user_id, examples=_span(columns, slice(start, stop), pool, rows), attributes=named)
            for user_id, (start, stop), named in zip(arrays["user_id"].tolist(), spans, attributes, strict=True)
        )
    except (KeyError, ValueError, TypeError) as error:
        raise FedprintError(f"{path}: not a file of users ({error}); run the stage that prepares them again") from error


def _tensors(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): torch.from_numpy(arrays[name]) for name in arrays if name.startswith(prefix)}


def _span(columns: Examples, span: slice, pool: Examples, rows: torch.Tensor | None) -> Examples:
    examples = {name: column[span] for name, column in columns.items()}
    return examples if rows is None else PooledExamples(pool, rows[span], examples)
