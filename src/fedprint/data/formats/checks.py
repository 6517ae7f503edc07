"""Checks of a table against its sidecar and against the rules for every data set; each failure is one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedprint.data.formats.files import Columns, dtype_name
from fedprint.data.formats.table import GROUPS, Table, class_names_of, has_groups, has_stars, label_column, role
from fedprint.types import FedprintError

_MOST_CLASSES = 1 << 20
"""The highest label without class names: as many names are made."""
_NEVER_NAN = (
    "user",
    "labels",
    "label",
    "order",
    "time",
    "images",
    "text",
    "album",
    "session",
    "group",
    "split",
    "stars",
)


def check_declared(table: Table) -> None:
    """Refuse columns that differ from the sidecar's in name, type or shape."""
    declared = _declared(table)
    if declared.keys() != table.columns.keys():
        missing, extra = sorted(declared.keys() - table.columns.keys()), sorted(table.columns.keys() - declared.keys())
        raise FedprintError(f"{table.file}: columns {missing} are missing, {extra} are not in the sidecar; align both")
    for name, (dtype, shape) in declared.items():
        column = table.columns[name]
        if dtype_name(column) != dtype:
            raise FedprintError(f"{table.file}: '{name}' is {dtype_name(column)}, the sidecar says {dtype}; align both")
        if shape is not None and column.shape != shape:
            raise FedprintError(
                f"{table.file}: '{name}' has shape {column.shape}, the sidecar says {shape}; align both"
            )


def check_content(table: Table) -> None:
    """Refuse values no data set may have: missing ones, strange users, images, groups, labels, counts."""
    check_missing(table)
    check_roles(table)
    check_labels(table)
    check_stars(table)
    check_attributes(table)
    check_counts(table)


def check_missing(table: Table) -> None:
    """Refuse NaN or null in a column with a role (a column of nothing but null counts as absent)."""
    for name in _NEVER_NAN:
        if role(table.columns, name) is None:
            continue
        rows = np.flatnonzero(_missing(table.columns[name]))
        if len(rows):
            raise FedprintError(
                f"{table.file}: '{name}' has no value in row {rows[0]}; fill or drop {len(rows)} row(s)"
            )


def check_roles(table: Table) -> None:
    """Refuse users other than integers, images other than uint8 pictures, text other than strings, unknown groups."""
    columns = table.columns
    if "user" in columns and columns["user"].dtype.kind not in "iu":
        raise FedprintError(
            f"{table.file}: 'user' is {dtype_name(columns['user'])}; number the users and put names into user_names"
        )
    if "images" in columns and not _is_pictures(columns["images"]):
        actual = f"{columns['images'].dtype} {columns['images'].shape}"
        raise FedprintError(
            f"{table.file}: 'images' is {actual}; needs uint8 (n, height, width) or (n, height, width, 3)"
        )
    if "text" in columns and dtype_name(columns["text"]) != "str":
        raise FedprintError(f"{table.file}: 'text' is {dtype_name(columns['text'])}; give one string per row")
    if has_groups(columns) and not set(columns["group"]) <= set(GROUPS):
        odd = min(map(str, set(columns["group"]) - set(GROUPS)))
        raise FedprintError(f"{table.file}: 'group' holds '{odd}'; use federated or background")


def check_labels(table: Table) -> None:
    """Refuse labels outside the declared classes, and declared classes without any example."""
    names = {label_column(table.columns)}
    if isinstance(table.sidecar.class_names, dict):
        names |= table.sidecar.class_names.keys() & table.columns.keys()
    for name in sorted(name for name in names if name):
        _check_label(table, name)


def check_stars(table: Table) -> None:
    """Refuse ratings outside the declared scale, and a scale whose lowest value is not below its highest."""
    scale = table.sidecar.scale
    if scale is None or not has_stars(table.columns):
        return
    low, high = scale
    if not low < high:
        raise FedprintError(f"{table.file}: scale is [{low}, {high}]; give the lowest and then the highest rating")
    odd = table.columns["stars"][(table.columns["stars"] < low) | (table.columns["stars"] > high)]
    if len(odd):
        raise FedprintError(f"{table.file}: 'stars' holds {odd[0]}, outside {low}..{high}; correct it or scale")


def check_attributes(table: Table) -> None:
    """Refuse an attribute that is not a column of integers from 0, or that differs between rows of one user."""
    for name in table.sidecar.attributes:
        values = table.columns.get(name)
        if values is None or values.ndim != 1 or values.dtype.kind not in "iub" or values.min() < 0:
            raise FedprintError(
                f"{table.file}: attribute '{name}' is not a column of integers from 0; add it or do not declare it"
            )
        pairs = np.unique(np.stack([table.columns["user"], values]).astype(np.int64), axis=1)[0]
        twice = pairs[:-1][pairs[1:] == pairs[:-1]]
        if len(twice):
            raise FedprintError(
                f"{table.file}: attribute '{name}' varies within user {twice[0]}; give one value per user"
            )


def check_counts(table: Table) -> None:
    """Refuse counts in the sidecar that differ from the data; other entries of counts are not checked."""
    _compare_counts(table, table.sidecar.counts, count(table.columns), "counts")


def count(columns: Columns) -> dict[str, Any]:
    """Return the examples, users and examples per user (minimum, median, maximum), for each group too."""
    counts = _count_users(columns)
    if has_groups(columns) and "user" in columns:
        for group in GROUPS:
            inside = columns["group"] == group
            if inside.any():
                counts[group] = _count_users({"user": columns["user"][inside]})
    return counts


def _count_users(columns: Columns) -> dict[str, Any]:
    examples = len(next(iter(columns.values())))
    if "user" not in columns:
        return {"examples": examples}
    sizes = np.unique(columns["user"], return_counts=True)[1]
    span = {
        "per_user_min": int(sizes.min()),
        "per_user_median": float(np.median(sizes)),
        "per_user_max": int(sizes.max()),
    }
    return {"users": len(sizes), "examples": examples, **span}


def _compare_counts(table: Table, declared: Mapping[str, Any], actual: Mapping[str, Any], path: str) -> None:
    for key in declared.keys() & actual.keys():
        if isinstance(declared[key], Mapping) and isinstance(actual[key], Mapping):
            _compare_counts(table, declared[key], actual[key], f"{path}.{key}")
        elif declared[key] != actual[key]:
            says = f"the sidecar says {path}.{key} = {declared[key]}, the file has {actual[key]}"
            raise FedprintError(f"{table.file}: {says}; correct the sidecar or restore the file")


def _declared(table: Table) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    if table.file.suffix == ".npz":
        return {name: (_normal(spec.dtype), spec.shape) for name, spec in table.sidecar.arrays.items()}
    return {name: (dtype, None) for name, dtype in table.sidecar.columns.items()}


def _normal(dtype: str) -> str:
    try:
        return "str" if np.dtype(dtype).kind == "U" else np.dtype(dtype).name
    except (TypeError, ValueError, SyntaxError, OverflowError, MemoryError):
        return dtype


def _missing(column: np.ndarray) -> np.ndarray:
    if column.dtype.kind == "f":
        rows: np.ndarray = np.isnan(column).reshape(len(column), -1).any(1)
        return rows
    return np.asarray(pd.isna(column)) if column.dtype == object else np.zeros(len(column), dtype=bool)


def _is_pictures(images: np.ndarray) -> bool:
    return images.dtype == np.uint8 and (images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 3))


def _check_label(table: Table, name: str) -> None:
    values = table.columns[name]
    classes = class_names_of(table.sidecar, name, values)
    if values.dtype.kind not in "iub" or values.ndim > 2:
        raise FedprintError(
            f"{table.file}: '{name}' is {values.dtype} {values.shape}; needs integers (n,) or 0/1 (n, classes)"
        )
    if values.ndim == 2 and classes and values.shape[1] != len(classes):
        raise FedprintError(
            f"{table.file}: '{name}' has {values.shape[1]} columns for {len(classes)} class_names; align both"
        )
    low, high = 0, 1 if values.ndim == 2 else len(classes) - 1 if classes else _MOST_CLASSES
    odd = values[(values < low) | (values > high)]
    if odd.size:
        raise FedprintError(f"{table.file}: '{name}' holds {odd[0]}, outside {low}..{high}; correct it or class_names")
    held = values.any(0) if values.ndim == 2 else np.isin(np.arange(len(classes)), values)
    if classes and not held.all():
        lost = classes[int(np.argmin(held))]
        raise FedprintError(f"{table.file}: class '{lost}' of '{name}' has no example; drop it from class_names")
