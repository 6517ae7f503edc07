"""Data sets in the layout in which their authors publish them: recognised, read line by line, and counted."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedprint.data.formats.locate import data_root
from fedprint.types import FedprintError

LAYOUTS: Mapping[str, str] = {
    "pipa": "annotations/index.txt",
    "openimages": "images",
    "yelp": "yelp_academic_dataset_review.json",
    "blog_corpus": "*.xml",
}
"""Data set -> a file (or pattern) by which its official layout is recognised; all files: docs/official-data.md."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What a source would load from an official layout, before anything is decoded."""

    name: str
    licence: str
    users: int
    users_in_the_paper: int
    examples: int
    per_user: tuple[int, float, int]
    """Examples per user: minimum, median, maximum."""
    background_users: int
    background_examples: int
    classes: tuple[str, ...] = ()
    left_out: tuple[str, ...]
    """Reasons with counts."""
    sha256: str

    @classmethod
    def of_sizes(
        cls, sizes: Sequence[int], background: Sequence[int], left_out: Mapping[str, int], **rest: Any
    ) -> Self:
        """Return the survey of users with ``sizes`` examples each; ``rest`` are its other fields by name."""
        return cls(
            users=len(sizes),
            examples=sum(sizes),
            per_user=(min(sizes), float(np.median(sizes)), max(sizes)),
            background_users=len(background),
            background_examples=sum(background),
            left_out=reasons(left_out),
            **rest,
        )


def list_official(data_dir: Path | None = None) -> tuple[str, ...]:
    """Return the data sets that lie in the data folder in their official layout, sorted."""
    root = data_root(data_dir)
    return tuple(name for name in sorted(LAYOUTS) if root is not None and any((root / name).glob(LAYOUTS[name])))


def fingerprint_files(folder: Path, paths: Iterable[Path]) -> str:
    """Return a hash of the files' names below ``folder`` and their sizes; their content is not read."""
    listing = "\n".join(sorted(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}" for path in paths))
    return sha256(listing.encode()).hexdigest()


def need(path: Path, what: str) -> Path:
    """Return ``path``. Raises FedprintError that says ``what`` to place there when it does not exist."""
    if path.exists():
        return path
    raise FedprintError(f"{path} does not exist; {what} (docs/official-data.md)")


def csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (line, the values of ``columns``) of a CSV file with a header, one row at a time.

    Raises FedprintError for a column that the header lacks, a row of another length, and bytes that are no UTF-8.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            header = next(reader, [])
            missing = [name for name in columns if name not in header]
            if missing:
                raise FedprintError(f"{path}: no column {missing} in its header {header}; restore the official file")
            positions = [header.index(name) for name in columns]
            for row in reader:
                if len(row) != len(header):
                    says = f"{len(row)} fields, the header has {len(header)}"
                    raise FedprintError(f"{path}, line {reader.line_num}: {says}; correct the line or drop it")
                yield reader.line_num, tuple(row[position] for position in positions)
        except (csv.Error, UnicodeDecodeError) as error:
            raise FedprintError(f"{path}, after line {reader.line_num}: {error}; restore the official file") from error


def evenly(count: int, most: int | None) -> list[int]:
    """Return at most ``most`` of the indices below ``count``, evenly spaced, the first and the last among them."""
    if most is None or count <= most:
        return list(range(count))
    return [round(step * (count - 1) / (most - 1)) for step in range(most)] if most > 1 else [0]


def reasons(left_out: Mapping[str, int]) -> tuple[str, ...]:
    """Return the reasons that occurred, with their counts."""
    return tuple(f"{count:,} {reason}" for reason, count in left_out.items() if count)
