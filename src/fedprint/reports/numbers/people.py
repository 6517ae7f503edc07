"""Users of data that may not be shared: in reports and in MLflow they have numbers, and their words stay out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedprint.data.formats.files import read_json, write_json

Numbers = Mapping[int, int]
"""User id -> number from 1 on, in the order of ids."""

_ID = ("user_id", "user")
_BY_ID = ("by_user", "ap_by_user", "linked_by_user", "utility_by_user")
"""Keys whose value is a user id, and keys below which user ids are keys."""

_WORDS = ("words", "top", "classes", "holds")
"""Keys of exhibits that hold words of texts."""


def may_show(details: Mapping[str, Any]) -> bool:
    """Return whether details.json is of data that may be shared."""
    return details.get("data", {}).get("shareable") is True


def hides_words(details: Mapping[str, Any]) -> bool:
    """Return whether labels are words that real people wrote and nobody may pass on."""
    return details.get("task") in {"language_model", "regression"} and not may_show(details)


def numbers_of(values: Sequence[Any]) -> Numbers:
    """Return a number for each user id in JSON ``values``: equal for results about the same users."""
    return {user: place for place, user in enumerate(sorted({user for each in values for user in _ids(each)}), start=1)}


def numbered(values: Any, numbers: Numbers, below_users: bool = False) -> Any:
    """Return JSON ``values`` with the number of each user in place of the id."""
    if isinstance(values, Mapping):
        return {
            str(numbers[int(key)]) if below_users and key.isdecimal() else key: numbers[value]
            if _is_id(key, value)
            else numbered(value, numbers, below_users or key in _BY_ID)
            for key, value in values.items()
        }
    return [numbered(value, numbers, below_users) for value in values] if _is_list(values) else values


def write_shown(folder: Path, out: Path) -> None:
    """Copy the results of a federation that may not be shared: users have numbers, and words are left out."""
    shutil.copytree(folder, out)
    files = {path.name: read_json(path) for path in sorted(folder.glob("*.json"))}
    numbers = numbers_of(list(files.values()))
    for name, values in files.items():
        hidden = name == "exhibits.json" and hides_words(files["details.json"])
        write_json(out / name, numbered(_without_words(values) if hidden else values, numbers))
    if (out / "tsne.npz").exists():
        with np.load(folder / "tsne.npz", allow_pickle=False) as arrays:
            users = np.array([numbers[user] for user in arrays["user"].tolist()], dtype=np.int64)
            np.savez(out / "tsne.npz", xy=arrays["xy"], user=users, role=arrays["role"])


def _ids(values: Any, below_users: bool = False) -> Iterator[int]:
    if isinstance(values, Mapping):
        for key, value in values.items():
            if below_users and key.isdecimal():
                yield int(key)
            if _is_id(key, value):
                yield value
            else:
                yield from _ids(value, below_users or key in _BY_ID)
    elif _is_list(values):
        for value in values:
            yield from _ids(value, below_users)


def _is_id(key: str, value: Any) -> bool:
    return key in _ID and isinstance(value, int)


def _is_list(values: Any) -> bool:
    return isinstance(values, (list, tuple))


def _without_words(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {key: _without_words(value) for key, value in values.items() if key not in _WORDS}
    return [_without_words(value) for value in values] if _is_list(values) else values
