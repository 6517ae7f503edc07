"""Recorded updates of any federation as one table: what the server saw, and never the truth."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray

from fedprint.params import select
from fedprint.store import files as disk
from fedprint.store.layout import ArrayFile, FloatArray
from fedprint.store.reader import UpdateStore
from fedprint.store.recorded.arrays import opened
from fedprint.store.recorded.checks import check_lines
from fedprint.store.recorded.findings import Finding, RecordingRefused, inside, quoted
from fedprint.store.recorded.given import given_findings, read_global
from fedprint.store.recorded.index import Line, frame
from fedprint.store.recorded.index import read_index as _file_index
from fedprint.store.recorded.manifest import Manifest, read_manifest
from fedprint.store.recorded.own_store import store_lines
from fedprint.store.recorded.tables import Files, Shapes, is_matrix, locate, read_all
from fedprint.store.sent import Sent
from fedprint.types import FedprintError, Floats, Ints

_WINDOW = 1 << 22
_CELLS = 1 << 30
"""Entries of the history of participation at most; beyond it is left out."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Updates as rows of one file: position i of the index is row ``order[i]``, ``start`` bytes come before row 0."""

    path: Path
    dtype: str
    width: int
    start: int
    order: Ints

    def fill(self, out: FloatArray, rows: Ints, first: int) -> None:
        """Copy the columns from ``first`` on of some positions into ``out`` (rows, columns)."""
        file = ArrayFile(path=str(self.path), dtype=self.dtype, rows=1, width=self.width, blocks=1, first_line=0)
        step = max(1, _WINDOW // (out.shape[1] * np.dtype(self.dtype).itemsize))
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            for begin in range(0, len(rows), step):
                window = self.order[rows[begin : begin + step]]
                out[begin : begin + step] = disk.read_rows(
                    descriptor, file, window, first, out.shape[1], header=self.start
                )
        finally:
            os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Recorded updates as the server saw them, always with the sign *local minus global*.

    ``index`` has one line per update: round (int64), device (str or None where rounds cannot be linked), num_examples
    (int64, 0 where unknown), user (str or None; known users are the prior). ``shapes`` are the layers in order.
    """

    folder: Path
    manifest: Manifest
    index: pd.DataFrame
    shapes: Shapes
    source: Rows | UpdateStore

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in order."""
        return tuple(self.shapes)

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of each layer."""
        return {name: math.prod(shape) for name, shape in self.shapes.items()}

    @cached_property
    def sent(self) -> Sent:
        """What the server sees of each row's sender, beside the update; rounds are numbered from 0 without gaps."""
        rounds = np.unique(self.index["round"].to_numpy(), return_inverse=True)[1].astype(np.int64)
        names = [name if name is not None else number for number, name in enumerate(self.index["device"])]
        senders = np.unique([str((type(name).__name__, name)) for name in names], return_inverse=True)[1]
        shape = (len(names), int(rounds.max()) + 1)
        took_part = np.zeros(shape if math.prod(shape) <= _CELLS else (len(names), 0), dtype=np.bool_)
        if took_part.shape[1]:
            took_part[senders, rounds] = True
        examples = self.index["num_examples"].to_numpy(dtype=np.int64)
        return Sent(examples=examples, rounds=rounds, history=took_part[senders])

    def columns(self, layers: Sequence[str] | None = None) -> dict[str, slice]:
        """Return which columns of :meth:`matrix` each layer fills; a layer is a full name or a dotted prefix.

        Raises FedprintError for a layer that was not recorded.
        """
        names = select(self.layers, layers)
        for layer in layers or ():
            if not select(names, [layer]):
                known = ", ".join(self.layers)
                raise FedprintError(f"{self.folder}: layer {quoted(layer)} is not recorded; choose from {known}")
        ends = np.cumsum([0, *(self.sizes[name] for name in names)]).tolist()
        return {name: slice(lo, hi) for name, lo, hi in zip(names, ends, ends[1:], strict=False)}

    def matrix(
        self,
        layers: Sequence[str] | None = None,
        rows: NDArray[np.integer] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> FloatArray:
        """Return updates (rows, d): the chosen layers side by side, all by default."""
        whole = max(part.stop for part in self.columns(layers).values())
        return next(self.blocks(layers, rows, columns=whole, dtype=dtype))

    def blocks(
        self,
        layers: Sequence[str] | None = None,
        rows: NDArray[np.integer] | None = None,
        *,
        columns: int = 1 << 14,
        dtype: DTypeLike = np.float32,
    ) -> Iterator[FloatArray]:
        """Yield :meth:`matrix` in column blocks (rows, <= ``columns``), left to right, in the memory of one block."""
        chosen = np.arange(len(self.index)) if rows is None else np.arange(len(self.index))[rows]
        turn = self.manifest.sign == "global_minus_local"
        for block in self._blocks(layers, chosen, columns, dtype):
            yield np.negative(block, out=block) if turn else block

    def global_model(self, number: int) -> dict[str, Floats] | None:
        """Return the model that devices received in round ``number``, by layer; None where it is not given."""
        if isinstance(self.source, UpdateStore):
            return {name: tensor.float().numpy() for name, tensor in self.source.global_params(number).items()}
        return read_global(self.folder, self.manifest, self.shapes, number) if self.manifest.globals else None

    def _blocks(self, layers: Sequence[str] | None, rows: Ints, columns: int, dtype: DTypeLike) -> Iterator[FloatArray]:
        if isinstance(self.source, UpdateStore):
            yield from self.source.blocks(layers, rows, columns=columns, dtype=dtype)
            return
        whole, parts = self.columns(), self.columns(layers)
        end = max(part.stop for part in parts.values())
        for first in range(0, end, columns):
            block = np.empty((len(rows), min(columns, end - first)), dtype)
            for name, part in parts.items():
                lo, hi = max(first, part.start), min(first + columns, part.stop)
                if lo < hi:
                    self.source.fill(block[:, lo - first : hi - first], rows, whole[name].start + lo - part.start)
            yield block


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the manifest and the index of a folder say; ``findings`` are the problems with both."""

    manifest: Manifest | None
    lines: tuple[Line, ...]
    findings: tuple[Finding, ...]


def observe(folder: Path) -> Observed:
    """Read manifest and index. Neither arrays nor the truth are opened."""
    manifest, findings = read_manifest(folder)
    if manifest is None or any(finding.what.startswith(("index: ", "updates: ")) for finding in findings):
        return Observed(manifest=manifest, lines=(), findings=findings)
    read = _store_index if manifest.format == "fedprint" else _file_index
    name = manifest.updates if manifest.format == "fedprint" else manifest.index
    lines, problems = read(inside(folder, name), name) if name else ([], [])
    among = check_lines(lines, name, truth=bool(manifest.truth))
    return Observed(manifest=manifest, lines=tuple(lines), findings=(*findings, *problems, *among))


def _store_index(path: Path, name: str) -> tuple[list[Line], list[Finding]]:
    try:
        return store_lines(UpdateStore.open(path, verify=False), name), []
    except FedprintError as error:
        return [], [Finding(file=name, what=f"no fedprint store ({quoted(error)})", remedy="give its folder observed/")]


def open_recording(folder: Path, scratch: Path, also: Sequence[Finding] = ()) -> Recording:
    """Open a recorded folder without its truth; updates in many files are copied once, under ``scratch``.

    ``also`` are problems that the caller found (those of the truth). Raises RecordingRefused, which lists them all, and
    FedprintError where the disk of ``scratch`` is too small.
    """
    seen = observe(folder)
    manifest = seen.manifest
    if manifest is None:
        raise RecordingRefused(folder, [*seen.findings, *also])
    if manifest.format == "fedprint":
        return _open_store(folder, manifest, seen.lines, [*seen.findings, *also])
    files, problems = locate(folder, manifest, seen.lines)
    given = given_findings(folder, manifest, files.shapes, (line.round for line in seen.lines))
    findings = [*seen.findings, *also, *problems, *given]
    place = _in_place if is_matrix(folder, manifest) else _copied
    source = place(folder, files, scratch, findings)
    return Recording(
        folder=folder, manifest=manifest, index=frame(list(seen.lines)), shapes=files.shapes, source=source
    )


def _open_store(folder: Path, manifest: Manifest, lines: Sequence[Line], findings: Sequence[Finding]) -> Recording:
    if findings:
        raise RecordingRefused(folder, findings)
    store = UpdateStore.open(inside(folder, manifest.updates))
    shapes = shapes_of_store(store)
    if given := given_findings(folder, manifest, shapes, ()):
        raise RecordingRefused(folder, given)
    return Recording(folder=folder, manifest=manifest, index=frame(list(lines)), shapes=shapes, source=store)


def shapes_of_store(store: UpdateStore) -> Shapes:
    """Return the layers of a fedprint store, in order."""
    return {name: tuple(store.layout.shapes[name]) for name in store.layers}


def _in_place(folder: Path, files: Files, scratch: Path, findings: Sequence[Finding]) -> Rows:
    """Return the rows of the matrix; its numbers are read once to find NaN, which ``scratch`` remembers."""
    mark = scratch / f"{_key(folder, files)}.json"
    if findings or not mark.exists():
        findings = [*findings, *read_all(files, None)]
        if findings:
            raise RecordingRefused(folder, findings)
        scratch.mkdir(parents=True, exist_ok=True)
        disk.replace(mark, b"{}\n")
    item = files.wanted[0]
    with opened(item.path, files.width) as file:
        stored = file.arrays[""]
    order = np.empty(len(files.lines), dtype=np.int64)
    for position, row in item.updates:
        order[position] = row or 0
    return Rows(path=item.path, dtype=stored.dtype.str, width=files.width, start=stored.start, order=order)


def _copied(folder: Path, files: Files, scratch: Path, findings: Sequence[Finding]) -> Rows:
    """Return the rows of a float32 copy of all files under ``scratch``, made unless one of unchanged files is there."""
    path, order = scratch / f"{_key(folder, files)}.f32", np.arange(len(files.lines))
    if findings:
        raise RecordingRefused(folder, [*findings, *read_all(files, None)])
    size = 4 * files.width * len(order)
    if not path.exists() or path.stat().st_size != size:
        with _new(path, size) as target:
            findings = read_all(files, target)
            if findings:
                raise RecordingRefused(folder, findings)
    return Rows(path=path, dtype="<f4", width=files.width, start=0, order=order)


@contextmanager
def _new(path: Path, size: int) -> Iterator[int]:
    """Open a file beside ``path`` for writing, which gets its name at the end, and goes after an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise disk.full(path, size, "not enough space", "free some space, or give another folder for scratch")
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".copy-")
    try:
        with disk.naming_full_disk(path, size):
            yield descriptor
        os.replace(name, path)
    finally:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)


def _key(folder: Path, files: Files) -> str:
    """Return a name that changes with the files (path, size, time of change), their rows, senders and layers."""
    state = [(item.name, *_state(item.path), item.updates) for item in files.wanted]
    senders = [(line.device, line.user) for line in files.lines]
    text = json.dumps([str(folder.resolve()), list(files.shapes.items()), state, senders])
    return disk.digest([text.encode()])


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
