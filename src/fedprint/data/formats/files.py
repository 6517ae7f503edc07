"""Reading and writing column files: npz, jsonl.gz and parquet. Writes are atomic and byte-deterministic."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprint.types import FedprintError

Columns = Mapping[str, np.ndarray]
"""Column name -> array (n, ...); text columns are object arrays of ``str``."""

SUFFIXES = (".npz", ".jsonl.gz", ".parquet")
"""Data files of the format, in the order in which they are looked for."""

_BROKEN = (
    OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, RecursionError, MemoryError,
    OverflowError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_DEFLATE = 1032
"""Deflate makes data at most this many times smaller."""


_KNOWN: dict[tuple[str, int, int], str] = {}
"""Digests by path, size and time: jobs ask for those of the same files again and again."""


def sha256_of(path: Path) -> str:
    """Return the file's SHA-256 as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(path: Path) -> str:
    """Return the file's SHA-256, which is read once per process for each size and time of its last change."""
    state = path.stat()
    key = (str(path.resolve()), state.st_size, state.st_mtime_ns)
    if key not in _KNOWN:
        _KNOWN[key] = sha256_of(path)
    return _KNOWN[key]


def replace_folder(source: Path, target: Path) -> None:
    """Move a folder, replacing the target."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to a temporary file beside ``path``, then rename it: readers see the old or the new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def npz_bytes(columns: Columns) -> bytes:
    """Return an npz (zip of npy, fixed time stamps, fast compression): equal columns give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, column in columns.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(column), allow_pickle=False)
    return buffer.getvalue()


def jsonl_bytes(columns: Columns) -> bytes:
    """Return a gzip (no time stamp) of one JSON object per row; NaN is written as null."""
    names = list(columns)
    rows = zip(*(_json_values(column) for column in columns.values()), strict=True)
    lines = "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    return gzip.compress(lines.encode(), mtime=0)


def parquet_bytes(columns: Columns) -> bytes:
    """Return a parquet file of one-dimensional columns."""
    buffer = io.BytesIO()
    pd.DataFrame(dict(columns)).to_parquet(buffer, index=False)
    return buffer.getvalue()


def encode_columns(columns: Columns, suffix: str) -> bytes:
    """Return the data file of type ``suffix``, one of :data:`SUFFIXES`."""
    return {".npz": npz_bytes, ".jsonl.gz": jsonl_bytes, ".parquet": parquet_bytes}[suffix](columns)


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Read a data file of the format. Raises FedprintError when it is broken or its columns differ in length."""
    columns = read_arrays(path)
    lengths = {name: len(column) if column.ndim else 0 for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise FedprintError(f"{path}: columns of different lengths {lengths}; give every column one entry per example")
    return columns


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an npz, jsonl.gz or parquet; never unpickles. Raises FedprintError when it is missing or broken."""
    read = _read_npz if path.suffix == ".npz" else _read_parquet if path.suffix == ".parquet" else _read_jsonl
    try:
        return read(path)
    except _BROKEN as error:
        reason = " ".join(str(error).split())[:120]
        raise FedprintError(f"{path}: cannot be read ({reason}); copy or make the file again") from error


def dtype_name(column: np.ndarray) -> str:
    """Return the type's name as sidecars write it: a numpy name, ``str`` for text, ``object`` for mixed or null."""
    if column.dtype.kind == "U" or (column.dtype == object and all(type(value) is str for value in column)):
        return "str"
    return column.dtype.name


def object_array(values: Sequence[Any]) -> np.ndarray:
    """Return a one-dimensional object array that holds ``values`` themselves."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def infer_column(values: Sequence[Any]) -> np.ndarray:
    """Return bool, int64, float64 (null becomes NaN) or object (text, mixed, all null) for JSON values."""
    kinds = set(map(type, values))
    if kinds == {bool}:
        return np.array(values, dtype=bool)
    if kinds == {int}:
        return np.array(values, dtype=np.int64)
    if float in kinds and kinds <= {int, float, type(None)}:
        return np.array(values, dtype=np.float64)
    return object_array(values)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            _check_member(archive, member)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise ValueError for an array whose header or size declares more than the file holds, before memory is taken."""
    if member.file_size > _DEFLATE * member.compress_size + 64:
        raise ValueError(f"{member.filename} declares {member.file_size:,} bytes in {member.compress_size:,}")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        declared = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and declared + stream.tell() != member.file_size:
            raise ValueError(f"{member.filename} declares {declared:,} bytes of numbers in {member.file_size:,}")


def _read_jsonl(path: Path) -> dict[str, np.ndarray]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    if not rows:
        raise ValueError("no row")
    names = list(rows[0])
    for number, row in enumerate(rows, start=1):
        if row.keys() != rows[0].keys():
            raise ValueError(f"line {number} has keys {sorted(row)}, line 1 has {sorted(names)}")
    return {name: infer_column([row[name] for row in rows]) for name in names}


def _read_parquet(path: Path) -> dict[str, np.ndarray]:
    frame = pd.read_parquet(path)
    return {str(name): _from_pandas(frame[name]) for name in frame.columns}


def _from_pandas(column: pd.Series) -> np.ndarray:
    values = column.to_numpy()
    return values if values.dtype.kind in "iufb" else infer_column(column.tolist())


def _json_values(column: np.ndarray) -> list[Any]:
    values: list[Any] = column.tolist()
    return [None if math.isnan(value) else value for value in values] if column.dtype.kind == "f" else values


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write sorted, indented JSON; equal values give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read what :func:`write_json` wrote."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedprintError(f"{path}: cannot be read ({error}); run the stage that makes it again") from None
    return values
