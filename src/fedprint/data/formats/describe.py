"""The format in which you bring your own data of users: ``<name>/<name>.json`` beside a data file.

The data file is ``<name>.npz`` (arrays), ``<name>.jsonl.gz`` (one object per line) or ``<name>.parquet``; the sidecar
declares its columns, classes, counts and SHA-256. docs/data-format.md describes every key with worked examples.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from fedprint.data.formats import checks
from fedprint.data.formats.files import (
    Columns,
    dtype_name,
    encode_columns,
    known_sha256,
    read_columns,
    sha256_of,
    write_atomic,
)
from fedprint.data.formats.table import Sidecar, Table
from fedprint.types import FedprintError

Kind = Literal["npz", "jsonl.gz", "parquet"]


def read_sidecar(folder: Path) -> Sidecar:
    """Return the sidecar without touching the data. Raises FedprintError when there is none or it is broken."""
    path = folder / f"{_name(folder)}.json"
    if not folder.is_dir():
        raise FedprintError(f"{folder}: no such folder; give a folder <name> that holds <name>.json and its data file")
    if not path.is_file():
        raise FedprintError(f"{path}: no such sidecar; describe the data in it (docs/data-format.md)")
    try:
        sidecar = Sidecar.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise FedprintError(f"{path}: {where}: {first['msg']}; see docs/data-format.md") from error
    if sidecar.name != _name(folder):
        raise FedprintError(f"{path}: name is '{sidecar.name}'; it must equal the folder's name '{_name(folder)}'")
    return sidecar


def data_sha256(folder: Path) -> str:
    """Return the SHA-256 of the data file as it is now, which may differ from what the sidecar declares.

    Raises FedprintError where sidecar or data file is missing.
    """
    return known_sha256(_existing(folder / read_sidecar(folder).data_file))


def read_table(folder: Path) -> Table:
    """Return the table, its files' SHA-256, columns, types and shapes as the sidecar declares them."""
    sidecar = read_sidecar(folder)
    data_file = folder / sidecar.data_file
    for name, spec in sidecar.files.items():
        _check_file(folder / name, spec.sha256)
    columns = read_columns(data_file)
    table = Table(name=sidecar.name, columns=_as_declared(columns, sidecar), sidecar=sidecar, folder=folder)
    checks.check_declared(table)
    return table


def validate(folder: Path) -> Table:
    """Return the table after every check of the format. Raises FedprintError (one line) at the first failure."""
    table = read_table(folder)
    checks.check_content(table)
    return table


def write_table(folder: Path, columns: Columns, header: Mapping[str, Any], kind: Kind | None = None) -> Table:
    """Write ``columns`` (n, ...) and a sidecar made of ``header`` (``licence`` at least) plus arrays, counts, SHA-256.

    ``kind`` defaults to npz for images and to jsonl.gz otherwise. Everything is checked before anything is written;
    each file is replaced atomically, the sidecar last. Equal input gives equal bytes. Raises FedprintError.
    """
    kind = kind or ("npz" if "images" in columns else "jsonl.gz")
    _check_writable(folder, columns, kind)
    content = encode_columns(columns, f".{kind}")
    table = _describe(folder, columns, header, content, kind)
    checks.check_declared(table)
    checks.check_content(table)
    write_atomic(table.file, content)
    text = json.dumps(table.sidecar.model_dump(mode="json"), indent=1, ensure_ascii=False)
    write_atomic(folder / f"{table.name}.json", text.encode() + b"\n")
    return table


def _name(folder: Path) -> str:
    return Path(os.path.abspath(folder)).name


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FedprintError(f"{path}: no such file, though the sidecar names it; copy it there or correct the sidecar")
    return path


def _check_file(path: Path, declared: str) -> None:
    actual = sha256_of(_existing(path))
    if actual != declared:
        raise FedprintError(
            f"{path}: sha256 is {actual[:12]}..., the sidecar says {declared[:12]}...; restore the file"
        )


def _as_declared(columns: Columns, sidecar: Sidecar) -> dict[str, np.ndarray]:
    # JSON writes whole floats as integers at times; the sidecar decides.
    return {
        name: column.astype(np.float64)
        if column.dtype == np.int64 and sidecar.columns.get(name) == "float64"
        else column
        for name, column in columns.items()
    }


def _check_writable(folder: Path, columns: Columns, kind: Kind) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1 or not all(lengths.values()):
        raise FedprintError(f"{folder}: columns of lengths {lengths}; give every column one entry per example")
    wide = [name for name, column in columns.items() if column.ndim > 1]
    if wide and kind != "npz":
        raise FedprintError(
            f"{folder}: '{wide[0]}' has {columns[wide[0]].ndim} dimensions; only npz holds such columns"
        )
    packed = [name for name, column in columns.items() if column.dtype == object]
    if packed and kind == "npz":
        raise FedprintError(
            f"{folder}: '{packed[0]}' is an object array; npz needs a plain type, for text np.array(.., str)"
        )


def _describe(folder: Path, columns: Columns, header: Mapping[str, Any], content: bytes, kind: Kind) -> Table:
    name = _name(folder)
    types = {column: dtype_name(values) for column, values in columns.items()}
    arrays = {column: {"shape": columns[column].shape, "dtype": dtype} for column, dtype in types.items()}
    declared = {"arrays": arrays} if kind == "npz" else {"columns": types}
    files = {f"{name}.{kind}": {"sha256": sha256(content).hexdigest(), "bytes": len(content)}}
    made = {"name": name, **declared, "counts": checks.count(columns), "files": files}
    try:
        sidecar = Sidecar.model_validate({**header, **made})
    except ValidationError as error:
        first = error.errors()[0]
        raise FedprintError(f"{folder}: header {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return Table(name=name, columns=columns, sidecar=sidecar, folder=folder)
