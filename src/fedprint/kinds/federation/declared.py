"""Development users, on whom choices are made, and confirmation users, who show what these are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fedprint.data.sources.registry import AnySource, label_of
from fedprint.kinds.config_files import read_yaml
from fedprint.types import FedprintError

FILE = "configs/users.yaml"
"""Data set -> how many of its users, the first in the order of its source, are for development."""

Part = Literal["development", "confirmation", "both"]


def development_users(root: Path, source: AnySource) -> int | None:
    """Return how many users of a data set are for development; None where none are declared.

    Raises FedprintError for what is no number of users, and for a source that cannot skip any.
    """
    path, name = root / FILE, label_of(source)
    count = read_yaml(path).get(name) if path.is_file() else None
    if count is None:
        return None
    if not isinstance(count, int) or count < 0:
        raise FedprintError(f"{path}: {name}: {count!r} is no number of users; write 0, 1, 2, ...")
    if "skip" not in type(source).model_fields:
        raise FedprintError(f"{path}: {name}: this source cannot skip users (data.skip); leave it out")
    return count


def part_of(root: Path, source: AnySource) -> Part | None:
    """Return which of its users a source loads; None where none are declared."""
    count = development_users(root, source)
    if count is None:
        return None
    skip, users = source.skip, source.users  # type: ignore[union-attr]
    if skip >= count:
        return "confirmation"
    return "development" if users is not None and skip + users <= count else "both"
