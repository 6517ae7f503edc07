"""Everything known about the finished tiny run, and small invented scenes of other tasks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch

from fedprint.analyses.base import Scene
from fedprint.store.reader import UpdateStore
from fedprint.types import Examples, User

if TYPE_CHECKING:
    from fedprint.lab.graph import Task


def scene(job: Task) -> Scene:
    """Return what evaluate shows to analyses."""
    from fedprint.data.formats.files import read_json
    from fedprint.data.prepared import load_meta
    from fedprint.kinds.federation.stages.evaluating.analyses import open_scene

    by_user = read_json(job.at("evaluation") / "details.json")["by_user"]["update"]
    return open_scene(job, load_meta(job.at("meta")), {row["user_id"]: row["ap"] for row in by_user})


def user(user_id: int, x: Any, y: Any) -> User:
    """Return a user with these examples."""
    examples: Examples = {"x": torch.as_tensor(x), "y": torch.as_tensor(y)}
    return User(user_id=user_id, examples=examples)


def text_scene(like: Scene, task: str, users: tuple[User, ...], **changes: Any) -> Scene:
    """Return a scene of text with a vocabulary of ten tokens."""
    words = tuple(f"word{i}" for i in range(10))
    known = {u.user_id: 0.5 for u in users}
    return replace(
        like, task=cast(Any, task), prior=users, private=users, class_names=words, features=None, ap=known, **changes
    )


def store(owner: list[int], roles: list[str], tensors: dict[str, np.ndarray]) -> UpdateStore:
    """Return a store of these updates: each tensor has shape (rows, ...)."""

    def matrix(layers: list[str], rows: np.ndarray) -> np.ndarray:
        return np.concatenate([tensors[name][rows].reshape(len(rows), -1) for name in layers], axis=1)

    index = pd.DataFrame({"obs_id": range(len(owner)), "role": roles})
    shapes = {name: values.shape[1:] for name, values in tensors.items()}
    made = SimpleNamespace(
        index=index, layers=tuple(tensors), layout=SimpleNamespace(shapes=shapes), matrix=matrix, owner=owner
    )
    return cast(UpdateStore, made)
