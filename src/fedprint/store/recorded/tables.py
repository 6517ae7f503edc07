"""From files to one table of updates (n, d): the layout they share, every problem in them, and one copy of them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from fedprint.lab.progress import meter
from fedprint.store.recorded.arrays import SUFFIXES, ArraysFile, opened
from fedprint.store.recorded.findings import Finding, Unreadable, inside, quoted
from fedprint.store.recorded.index import Line
from fedprint.store.recorded.manifest import Manifest

Shapes = dict[str, tuple[int, ...]]
Known = dict[bytes, int]
"""Digest of an update -> position of the first that has it."""
WHOLE = "update"
"""The name of the only layer where the manifest names none."""
_PROBED = 5
"""Files of which most must agree on the layout: one damaged file must not make all others wrong."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One file and the updates that are in it: pairs of (position in the index, row of the file or None)."""

    path: Path
    name: str
    updates: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True, kw_only=True)
class Files:
    """All files of a recording and the layers that each update has, in order."""

    wanted: tuple[Wanted, ...]
    shapes: Shapes
    lines: Sequence[Line]

    @property
    def width(self) -> int:
        """Numbers of one update."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def locate(folder: Path, manifest: Manifest, lines: Sequence[Line]) -> tuple[Files, list[Finding]]:
    """Return the files that the index names, with the updates of each, and every problem with the names."""
    findings: list[Finding] = []
    try:
        base = inside(folder, manifest.updates)
    except Unreadable:  # the manifest's own finding
        return Files(wanted=(), shapes={}, lines=lines), findings
    rows: dict[str, list[tuple[int, int | None]]] = {}
    for position, line in enumerate(lines):
        name = _file_of(base, line, findings)
        if name is not None:
            rows.setdefault(name, []).append((position, line.row))
    wanted = [w for name in rows if (w := _wanted(base, manifest, name, rows[name], lines, findings))]
    shapes = _layout(manifest, wanted)
    if wanted and not shapes:
        findings.append(Finding(file=manifest.updates, what="no file can be read", remedy="correct the findings"))
    return Files(wanted=tuple(wanted), shapes=shapes, lines=lines), findings


def _file_of(base: Path, line: Line, findings: list[Finding]) -> str | None:
    """Return the file of an update, relative to ``base``; "" is ``base`` itself."""
    if base.is_dir():
        if line.file is None:
            findings.append(line.finding("'file' is empty", "name the file of the update"))
        return line.file
    if line.row is None:
        findings.append(line.finding("'row' is empty", "give the row of the matrix, from 0"))
        return None
    if line.file is not None and line.file != base.name:
        findings.append(line.finding(f"'file' is '{quoted(line.file)}'", "drop it: 'updates' is one file"))
        return None
    return ""


def _wanted(
    base: Path,
    manifest: Manifest,
    name: str,
    updates: list[tuple[int, int | None]],
    lines: Sequence[Line],
    findings: list[Finding],
) -> Wanted | None:
    try:
        path = inside(base, name) if name else base
        if path.suffix not in SUFFIXES[manifest.format] or path.is_dir():
            what = f"'{quoted(name or manifest.updates)}' is not of format {manifest.format}"
            raise Unreadable(what, f"give files that end in {' or '.join(SUFFIXES[manifest.format])}")
    except Unreadable as error:
        findings += [lines[position].finding(error.what, error.remedy) for position, _ in updates]
        return None
    ordered = tuple(sorted(updates, key=lambda pair: -1 if pair[1] is None else pair[1]))
    shown = f"{manifest.updates}/{name}" if name else manifest.updates
    return Wanted(path=path, name=shown, updates=ordered)


def _layout(manifest: Manifest, wanted: Sequence[Wanted]) -> Shapes:
    """Return the layers: those of the manifest, else those on which most of the first readable files agree."""
    if manifest.layers:
        return dict(manifest.layers)
    seen: Counter[tuple[tuple[str, tuple[int, ...]], ...]] = Counter()
    for item in wanted:
        try:
            with opened(item.path) as file:
                seen[tuple(_shapes_of(file, item).items())] += 1
        except Unreadable:
            continue
        if seen.total() == _PROBED:
            break
    return dict(seen.most_common(1)[0][0]) if seen else {}


def _shapes_of(file: ArraysFile, item: Wanted) -> Shapes:
    """Return the shapes of one update of a file; with rows the first axis counts updates."""
    many = item.updates[0][1] is not None
    return {name or WHOLE: stored.shape[1:] if many else stored.shape for name, stored in file.arrays.items()}


def read_all(files: Files, target: int | None) -> list[Finding]:
    """Read every update, write it as float32 to row ``position`` of the open file ``target``; return all problems."""
    findings: list[Finding] = []
    known: Known = {}
    with meter("reading updates", len(files.lines)) as progress:
        done = 0
        for item in files.wanted:
            findings += _read_file(files, item, target, known)
            done += len(item.updates)
            if done < len(files.lines):  # fast reading is silent
                progress.update(done, item.name)
    return findings


def _read_file(files: Files, item: Wanted, target: int | None, known: Known) -> list[Finding]:
    try:
        with opened(item.path, files.width) as file:
            findings = list(_misfits(files, item, file))
            if findings:
                return findings
            bad_rows = [f for f in (_row_beyond(files, item, file, *pair) for pair in item.updates) if f]
            if bad_rows:
                return bad_rows
            for position, row in item.updates:
                seen = _copy(files, file, (position, row), target)
                findings += _problems(files, item, position, seen, known)
            return findings
    except Unreadable as error:
        return [Finding(file=item.name, what=error.what, remedy=error.remedy)]


def _misfits(files: Files, item: Wanted, file: ArraysFile) -> Iterator[Finding]:
    """Yield how the arrays of a file differ from the layers of the recording."""
    rows = [row for _, row in item.updates]
    if None in rows and len(rows) > 1:
        repeated = "'row' is empty, but the file is named more than once"
        for position, row in item.updates:
            if row is None:
                yield files.lines[position].finding(repeated, "give the row of each update, or drop the repetition")
        return
    if rows[0] is not None and any(stored.fortran for stored in file.arrays.values()):
        yield Finding(file=item.name, what="is stored column by column", remedy="store numpy.ascontiguousarray(...)")
        return
    if rows[0] is not None and any(not stored.shape for stored in file.arrays.values()):
        yield Finding(file=item.name, what="has an array without rows", remedy="stack the updates of the file")
        return
    if list(file.arrays) == [""]:
        yield from _misfit_flat(files, item, file)
        return
    shapes = _shapes_of(file, item)
    for name in files.shapes.keys() - shapes.keys():
        yield Finding(file=item.name, what=f"array '{quoted(name)}' is missing", remedy="store the same arrays in each")
    for name, shape in shapes.items():
        expected = files.shapes.get(name)
        if expected is None:
            yield Finding(
                file=item.name, what=f"array '{quoted(name)}' is not in the others", remedy="store the same arrays"
            )
        elif expected != shape:
            what = f"array '{quoted(name)}' has shape {shape} instead of {expected}"
            yield Finding(file=item.name, what=what, remedy="give all updates the shapes of one model")
    if rows[0] is not None and len({stored.shape[0] for stored in file.arrays.values()}) > 1:
        yield Finding(file=item.name, what="has arrays of different numbers of rows", remedy="stack the same updates")


def _misfit_flat(files: Files, item: Wanted, file: ArraysFile) -> Iterator[Finding]:
    """Yield whether the only array of a file has not the size of all layers together."""
    many = item.updates[0][1] is not None
    size = math.prod(file.arrays[""].shape[1:] if many else file.arrays[""].shape)
    if size != files.width:
        what = f"has {size:,} numbers for an update instead of {files.width:,}"
        yield Finding(file=item.name, what=what, remedy="give all updates the sizes of one model")


def _row_beyond(files: Files, item: Wanted, file: ArraysFile, position: int, row: int | None) -> Finding | None:
    rows = next(iter(file.arrays.values())).shape[0] if row is not None else 0
    if row is None or row < rows:
        return None
    return files.lines[position].finding(f"row {row} is not in '{quoted(item.name)}'", f"give 0 to {rows - 1}")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What reading an update showed: how many numbers of each layer are not finite, and a digest (b"": all zero)."""

    bad: dict[str, int]
    digest: bytes


def _copy(files: Files, file: ArraysFile, update: tuple[int, int | None], target: int | None) -> Seen:
    """Read the update (position, row of the file) once; write it where there is a ``target``."""
    position, row = update
    first, bad, state, zero = 4 * position * files.width, {}, blake2b(digest_size=16), True
    flat = list(file.arrays) == [""]
    for name, size in [("", files.width)] if flat else [(n, math.prod(s)) for n, s in files.shapes.items()]:
        wrong = 0
        for offset, values in file.pieces(name, row):
            wrong += len(values) - int(np.count_nonzero(np.isfinite(values)))
            data = np.ascontiguousarray(values).data.cast("B")
            state.update(data)
            zero = zero and not values.any()
            if target is not None:
                _write(target, data, first + 4 * offset)
        first += 4 * size
        bad.update({name: wrong} if wrong else {})
    return Seen(bad=bad, digest=b"" if zero else state.digest())


def _problems(files: Files, item: Wanted, position: int, seen: Seen, known: Known) -> Iterator[Finding]:
    """Yield numbers that are not finite, and an update that is equal to one of another sender."""
    line = files.lines[position]
    for name, count in seen.bad.items():
        array = f"array '{quoted(name)}' of " if name else ""
        yield line.finding(f"{array}'{quoted(item.name)}' has {count:,} NaN or infinite numbers", "drop the update")
    first = files.lines[known.setdefault(seen.digest, position)]
    if seen.digest and first is not line and (first.device, first.user) != (line.device, line.user):
        yield line.finding(f"the numbers equal those of row {first.at[1]}, of another sender", "drop the duplicate")


def _write(target: int, data: memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``."""
    while len(data) > 0:
        written = os.pwrite(target, data, offset)
        data, offset = data[written:], offset + written


def is_matrix(folder: Path, manifest: Manifest) -> bool:
    """Return whether the updates are one matrix file, which is read in place."""
    return manifest.format == "npy" and (folder / manifest.updates).is_file()
