"""The index of a recorded folder: one line per update, from CSV, JSON lines, Parquet or a folder of such files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from fedprint.store.recorded.findings import Finding, Unreadable, did_you_mean, quoted, regular

COLUMNS = ("file", "row", "round", "device", "num_examples", "user")
TEXT = ("file", "device", "user")
_LONGEST = 4096
"""Characters of a name at most."""
_MOST = 2**53
_ROWS_PER_BYTE = 64
"""Rows per byte of a Parquet file at most: a few bytes can declare any number of equal rows."""

Row = tuple[str, int, Mapping[str, Any]]
"""File, line of the file and the values by column; an empty value is None or an empty text."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the index, checked by itself; ``at`` is its file and row for findings."""

    at: tuple[str, int]
    file: str | None
    row: int | None
    round: int
    device: str | None
    num_examples: int
    user: str | None

    def finding(self, what: str, remedy: str) -> Finding:
        """Return a problem with this line."""
        return Finding(file=self.at[0], row=self.at[1], what=what, remedy=remedy)


def read_index(path: Path, name: str) -> tuple[list[Line], list[Finding]]:
    """Return the lines of an index file (or of all files of a folder, by name) and every problem with them."""
    lines: list[Line] = []
    findings: list[Finding] = []
    for row in read_rows(path, name, COLUMNS, findings):
        line = _line(row, findings)
        if line is not None:
            lines.append(line)
    if not lines and not findings:
        findings.append(Finding(file=name, what="holds no update", remedy="write one line per update"))
    return lines, findings


def read_rows(path: Path, name: str, known: Iterable[str], findings: list[Finding]) -> Iterator[Row]:
    """Yield the rows of a table; what cannot be read, and columns that are not ``known``, become findings."""
    if path.is_dir():
        parts = sorted(p for p in path.iterdir() if p.suffix in _READERS and not p.name.startswith("."))
        for part in parts:
            yield from read_rows(part, f"{name}/{part.name}", known, findings)
        return
    strange: set[str] = set()
    try:
        reader = _READERS.get(path.suffix)
        if reader is None:
            raise Unreadable(f"has the ending '{quoted(path.suffix)}'", f"use {', '.join(_READERS)}")
        if path.is_symlink():
            raise Unreadable("is a link", "copy the file into the folder")
        for number, values in reader(regular(path)):
            for column in values.keys() - set(known) - strange:
                remedy = did_you_mean(str(column), known)
                findings.append(Finding(file=name, what=f"unknown column '{quoted(column)}'", remedy=remedy))
                strange.add(column)
            yield name, number, values
    except _Row as error:
        findings.append(Finding(file=name, row=error.row, what=error.what, remedy=error.remedy))
    except Unreadable as error:
        findings.append(Finding(file=name, what=error.what, remedy=error.remedy))
    except OSError as error:
        findings.append(Finding(file=name, what=f"cannot be read ({error.strerror})", remedy="make it readable"))


class _Row(Unreadable):
    """A problem with one row, after which the file cannot be read on."""

    def __init__(self, row: int, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.row = row


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            if not header or len(set(header)) != len(header):
                raise _Row(1, f"header is '{quoted(','.join(header))}'", "name each column once")
            for values in reader:
                if len(values) != len(header) and values:
                    fields = f"{len(values)} fields, the header has {len(header)}"
                    raise _Row(reader.line_num, fields, "correct the line")
                if values:
                    yield reader.line_num, dict(zip(header, values, strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise _Row(reader.line_num + 1, f"not CSV in UTF-8 ({quoted(error)})", "correct the line") from None


def _jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(1 << 20), b""), start=1):
            try:
                values = json.loads(raw) if raw.strip() else {}
            except (ValueError, RecursionError) as error:
                raise _Row(number, f"not JSON ({quoted(error)})", "correct the line") from None
            if not isinstance(values, dict):
                raise _Row(number, "not a JSON object", "write one object per line")
            if values:
                yield number, values


def _parquet(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        data = pa.OSFile(str(path))
        with pq.ParquetFile(data) as probe:
            _check_parquet(probe, path.stat().st_size)
            text = [field.name for field in probe.schema_arrow if pa.types.is_string(field.type)]
        with pq.ParquetFile(pa.OSFile(str(path)), read_dictionary=text) as file:
            number = 0
            for batch in file.iter_batches(batch_size=1 << 12):
                for values in batch.to_pylist():
                    number += 1
                    yield number, values
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"not Parquet ({quoted(' '.join(str(error).split()))})", "write the file again") from None


def _check_parquet(file: pq.ParquetFile, size: int) -> None:
    """Refuse a table that declares far more than the file can hold."""
    rows = file.metadata.num_rows
    if not 0 <= rows <= 1000 + _ROWS_PER_BYTE * size:
        raise Unreadable(f"declares {rows:,} rows in {size:,} bytes", "write the file again")
    flat = [pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_string(t) or pa.types.is_null(t) or
            pa.types.is_large_string(t) or pa.types.is_dictionary(t) for t in file.schema_arrow.types]  # fmt: skip
    if not all(flat):
        odd = file.schema_arrow.names[flat.index(False)]
        raise Unreadable(f"column '{quoted(odd)}' is neither text nor numbers", "store text or whole numbers")


_READERS = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}


def _line(row: Row, findings: list[Finding]) -> Line | None:
    """Return the checked values of a row; None with findings where one is wrong."""
    name, number, values = row
    before = len(findings)

    def wrong(what: str, remedy: str) -> None:
        findings.append(Finding(file=name, row=number, what=what, remedy=remedy))

    texts = {key: text_of(values.get(key), key, wrong) for key in TEXT}
    numbers = {key: _whole(values.get(key), key, wrong) for key in ("row", "round", "num_examples")}
    if numbers["round"] is None and len(findings) == before:
        wrong("'round' is empty", "give the round, a whole number from 0")
    if len(findings) > before:
        return None
    return Line(
        at=(name, number),
        file=PurePosixPath(texts["file"]).as_posix() if texts["file"] else None,
        row=numbers["row"],
        round=numbers["round"] or 0,
        device=texts["device"],
        num_examples=numbers["num_examples"] or 0,
        user=texts["user"],
    )


def text_of(value: Any, key: str, wrong: Any) -> str | None:
    """Return a name as text, None where it is empty; ``wrong(what, remedy)`` is told of anything else."""
    if value is None or value == "" or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        wrong(f"'{key}' is a {type(value).__name__}", "give text")
        return None
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if len(text) > _LONGEST or not text.isprintable() or text != text.strip():
        wrong(f"'{key}' is '{quoted(text)}'", f"give at most {_LONGEST} printable characters, no blanks at the ends")
        return None
    return text


def _whole(value: Any, key: str, wrong: Any) -> int | None:
    """Return a whole number from 0, None where it is empty."""
    if value is None or value == "" or (isinstance(value, float) and value != value):
        return None
    number: int | None = None
    try:
        if not isinstance(value, bool) and len(str(value)) <= 32 and float(value).is_integer():
            number = int(value) if isinstance(value, int) else int(float(value))
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or not 0 <= number < _MOST:
        wrong(f"'{key}' is '{quoted(value)}'", "give a whole number from 0")
        return None
    return number


def frame(lines: list[Line]) -> pd.DataFrame:
    """Return what the server sees of each update, in the columns that ``Recording.index`` has."""
    return pd.DataFrame(
        {
            "round": pd.Series([line.round for line in lines], dtype="int64"),
            "device": pd.Series([line.device for line in lines], dtype=object),
            "num_examples": pd.Series([line.num_examples for line in lines], dtype="int64"),
            "user": pd.Series([line.user for line in lines], dtype=object),
        }
    )
