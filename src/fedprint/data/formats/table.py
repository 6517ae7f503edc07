"""The sidecar and the table of the self-describing format, and the role of each column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from fedprint.data.formats.files import SUFFIXES, Columns
from fedprint.types import FedprintError

GROUPS = ("background", "federated")
"""Values of a text column ``group``; an integer column of that name is ordinary data."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class ArraySpec(_Record):
    """Declared shape (n, ...) and numpy type of one array of an npz."""

    shape: tuple[int, ...]
    dtype: str


class FileSpec(_Record):
    """Declared SHA-256 and size in bytes of one file of the folder."""

    sha256: str
    bytes: int | None = None


class Sidecar(_Record):
    """What ``<name>.json`` says about the data; unknown keys are kept, so that any project can add its own.

    ``arrays`` declares the columns of an npz, ``columns`` those of a jsonl.gz or parquet. ``class_names`` names the
    classes of ``labels`` (a list), or of several columns (column -> list); ``attributes`` names integer columns that
    are the same on all rows of a user. ``scale`` is the lowest and highest value that ``stars`` can take.
    """

    name: str
    licence: str
    files: dict[str, FileSpec]
    title: str = ""
    description: str = ""
    task: str = ""
    class_names: tuple[str, ...] | dict[str, tuple[str, ...]] = ()
    user_names: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    scale: tuple[float, float] | None = None
    arrays: dict[str, ArraySpec] = {}
    columns: dict[str, str] = {}
    counts: dict[str, Any] = {}
    samples: Literal["shareable", "private"] = "private"

    @property
    def data_file(self) -> str:
        """Return the declared data file. Raises FedprintError when ``files`` declares none."""
        for suffix in SUFFIXES:
            if self.name + suffix in self.files:
                return self.name + suffix
        wanted = " or ".join(self.name + suffix for suffix in SUFFIXES)
        raise FedprintError(f"{self.name}.json: files lists no data file; declare {wanted} with its sha256")

    @property
    def sha256(self) -> str:
        """Return the declared SHA-256 of the data file."""
        return self.files[self.data_file].sha256

    @property
    def shareable(self) -> bool:
        """Return whether samples may be shown in reports."""
        return self.samples == "shareable"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A data set as it is on disk: ``columns`` (n, ...) in file order; ``folder`` is where it was read."""

    name: str
    columns: Columns
    sidecar: Sidecar
    folder: Path

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def file(self) -> Path:
        """Return the path of the data file, for messages."""
        return self.folder / self.sidecar.data_file


def role(columns: Columns, *names: str) -> str | None:
    """Return the first of ``names`` that is a column with content (a column of nothing but null is no column)."""
    return next((name for name in names if name in columns and not _all_null(columns[name])), None)


def label_column(columns: Columns) -> str | None:
    """Return the column that holds labels."""
    return role(columns, "labels", "label")


def has_stars(columns: Columns) -> bool:
    """Return whether column ``stars`` rates the examples; anything but plain numbers of this name is ordinary data."""
    return "stars" in columns and columns["stars"].dtype.kind in "iuf" and columns["stars"].ndim == 1


def album_column(columns: Columns) -> str | None:
    """Return the column that says which examples belong to one event."""
    return role(columns, "album", "session")


def time_columns(columns: Columns) -> tuple[str, ...]:
    """Return the columns that order a user's examples, the coarser first: ``time``, then ``order`` among equals."""
    return tuple(name for name in ("time", "order") if role(columns, name))


def has_groups(columns: Columns) -> bool:
    """Return whether column ``group`` separates federated users from background users."""
    return "group" in columns and columns["group"].dtype.kind in "OU"


def class_names_of(sidecar: Sidecar, column: str, values: np.ndarray) -> tuple[str, ...]:
    """Return the names of the classes in ``column``; empty when the sidecar declares none.

    With several lists in ``class_names``, ``labels`` takes the list of its own name, else the only one as long as
    the multi-hot is wide.
    """
    declared = sidecar.class_names
    if not isinstance(declared, dict):
        return declared if column in ("labels", "label") else ()
    if column in declared or values.ndim == 1:
        return declared.get(column, ())
    fitting = [names for names in declared.values() if len(names) == values.shape[1]]
    return fitting[0] if len(fitting) == 1 else ()


def _all_null(column: np.ndarray) -> bool:
    return column.dtype == object and all(value is None for value in column)
