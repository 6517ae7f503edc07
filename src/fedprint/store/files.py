"""Writing the bytes of an update store to the disk and checking them: writes at offsets, digests, chained journals."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprint.store.layout import ArrayFile, FloatArray
from fedprint.types import FedprintError, Ints

JOURNAL = "journal.jsonl"
REPAIR = "restore the folder (dvc checkout) or delete the store and run again"
_FULL = {errno.ENOSPC: "no space left", errno.EDQUOT: "quota exceeded", errno.EFBIG: "file size limit reached"}
_CHUNK = 1 << 22


def digest(parts: Iterable[bytes | memoryview]) -> str:
    """Return the BLAKE2b-128 digest of the concatenated parts, in hex."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part)
    return state.hexdigest()


@contextmanager
def naming_full_disk(path: Path, needed: int) -> Iterator[None]:
    """Turn "disk full" while writing ``needed`` bytes to ``path`` into one line that names both and the free bytes."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise full(path, needed, _FULL[error.errno], "free some space, then run again: it resumes") from error


def full(path: Path, needed: int, reason: str, remedy: str) -> FedprintError:
    """Return the error for a disk that cannot take ``needed`` more bytes at ``path``."""
    free = shutil.disk_usage(path.parent).free
    return FedprintError(f"{path}: {reason}: {needed} bytes needed, {free} free; {remedy}")


def write_at(path: Path, offset: int, data: memoryview | bytes, *, truncate: bool = False) -> None:
    """Write ``data`` at ``offset``, without sync; ``truncate`` first cuts the file there. FedprintError if full."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with naming_full_disk(path, len(data)):
            if truncate:
                os.ftruncate(fd, offset)
            while len(data) > 0:
                written = os.pwrite(fd, data, offset)
                data, offset = data[written:], offset + written
    finally:
        os.close(fd)


def write_parts(path: Path, offset: int, parts: Iterable[memoryview]) -> str:
    """Write the parts one after another from ``offset``, without sync, and return the digest of them all.

    A part is digested where it is made, while it is still in the core's cache.
    """
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part)
        write_at(path, offset, part)
        offset += len(part)
    return state.hexdigest()


def sync(paths: Iterable[Path]) -> None:
    """Return once the content of every path (file or folder) is on the disk."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            with naming_full_disk(path, 0):
                os.fsync(fd)
        finally:
            os.close(fd)


def replace(path: Path, data: bytes) -> None:
    """Replace the content of ``path`` by ``data`` atomically; it is on the disk when this returns."""
    temporary = path.with_name(path.name + ".tmp")
    write_at(temporary, 0, data, truncate=True)
    sync([temporary])
    os.replace(temporary, path)
    sync([path.parent])


def allocate(folder: Path, files: Iterable[ArrayFile], allowance: int) -> None:
    """Give every file its full size on the disk, zeros where new; existing content stays.

    ``allowance`` is the number of bytes that other files will need. Raises FedprintError when the disk cannot hold it
    all; the files that this call created are then removed.
    """
    missing = [file for file in files if _allocated(folder / file.path) < file.size]
    needed = allowance + sum(file.size - _allocated(folder / file.path) for file in missing)
    if needed > shutil.disk_usage(folder).free:
        raise full(folder, needed, "not enough space", "free some space, keep fewer layers or store float16")
    created = [folder / file.path for file in missing if not (folder / file.path).exists()]
    try:
        for file in missing:
            _allocate(folder / file.path, file.size, needed)
    except FedprintError:
        for path in created:
            path.unlink(missing_ok=True)
        raise


def _allocated(path: Path) -> int:
    return min(path.stat().st_size, path.stat().st_blocks * 512) if path.exists() else 0


def _allocate(path: Path, size: int, needed: int) -> None:
    path.parent.mkdir(exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with naming_full_disk(path, needed):
            os.ftruncate(fd, min(size, os.fstat(fd).st_size))
            os.posix_fallocate(fd, 0, size)
            os.fsync(fd)
    finally:
        os.close(fd)


def as_bytes(array: NDArray[Any]) -> memoryview:
    """View a non-empty array as bytes, in C order."""
    return np.ascontiguousarray(array).data.cast("B")


def check_size(folder: Path, file: ArrayFile) -> None:
    """Raise FedprintError when a file is missing or not of the size that the layout gives."""
    path = folder / file.path
    if not path.exists():
        raise FedprintError(f"{path}: missing; {REPAIR}")
    if (size := path.stat().st_size) != file.size:
        kind = "truncated" if size < file.size else "too long"
        line = file.first_line + min(size, file.size) // file.block_bytes
        raise FedprintError(f"{path}: {kind} at {line_name(line)}: {size} bytes instead of {file.size}; {REPAIR}")


def check_block(folder: Path, file: ArrayFile, line: int, expected: str) -> None:
    """Raise FedprintError when the block of a journal line differs from what the journal recorded."""
    path, start, end = folder / file.path, file.offset(line), file.offset(line) + file.block_bytes
    if digest(_chunks(path, start, end)) == expected:
        return
    kind = "blank (never written)" if not any(map(any, _chunks(path, start, end))) else "damaged (checksum differs)"
    kind = f"truncated at byte {path.stat().st_size}" if path.stat().st_size < end else kind
    raise FedprintError(f"{path}: {line_name(line)}, bytes {start} to {end}: {kind}; {REPAIR}")


def read_block(folder: Path, file: ArrayFile, line: int, expected: str) -> bytes:
    """Return the block of a journal line after :func:`check_block`."""
    check_block(folder, file, line, expected)
    return b"".join(_chunks(folder / file.path, file.offset(line), file.offset(line) + file.block_bytes))


def read_rows(descriptor: int, file: ArrayFile, rows: Ints, first: int, columns: int, *, header: int = 0) -> FloatArray:
    """Return the ``columns`` from ``first`` on of some rows of a file (rows, columns), as they are stored.

    Row 0 begins after ``header`` bytes. Row by row: where a file is memory-mapped, the kernel maps whole rows for a few
    columns.
    """
    values = np.empty((len(rows), columns), file.dtype)
    row_bytes, start = file.width * values.itemsize, header + first * values.itemsize
    for row, into in zip(rows.tolist(), values, strict=True):
        if (got := os.preadv(descriptor, [into.data], row * row_bytes + start)) != into.nbytes:
            raise FedprintError(f"{file.path}: row {row} ends after {got} of {into.nbytes} bytes; {REPAIR}")
    return values


def _chunks(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as handle:
        handle.seek(start)
        while start < end and (chunk := handle.read(min(end - start, _CHUNK))):
            yield chunk
            start += len(chunk)


def line_name(line: int) -> str:
    """Return the name of a journal line for messages: line t + 1 is round t."""
    return "initial parameters" if line == 0 else f"round {line - 1}"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A valid journal line: its ``body``, the ``digest`` of all lines so far, the byte ``end`` after it."""

    body: Mapping[str, Any]
    digest: str
    end: int


def read_journal(path: Path, seed: str, *, torn_ok: bool) -> Iterator[Line]:
    """Yield the valid lines of a chained journal; ``seed`` binds the chain to its store.

    A last line that is incomplete or does not fit is left out when ``torn_ok``. Any other damage raises FedprintError:
    each line carries the digest of itself and of the line before.
    """
    previous, end = seed, 0
    if not path.exists():
        return
    with path.open("rb") as handle:
        for number, raw in enumerate(handle, start=1):
            line = _parse(raw, previous, end)
            if line is None and torn_ok and not handle.peek(1):
                return
            if line is None:
                raise FedprintError(f"{path}: line {number} is corrupt or of another store; {REPAIR}")
            yield line
            previous, end = line.digest, line.end


def _parse(raw: bytes, previous: str, start: int) -> Line | None:
    try:
        body = json.loads(raw)["body"]
        text, chained = format_line(body, previous)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Line(body=body, digest=chained, end=start + len(raw)) if text == raw else None


def format_line(body: Mapping[str, Any], previous: str) -> tuple[bytes, str]:
    """Return the bytes of the line that follows digest ``previous``, and its own digest."""
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    chained = digest([previous.encode(), text.encode()])
    return f'{{"digest":"{chained}","body":{text}}}\n'.encode(), chained


class Journal:
    """An open chained journal: append-only; after a crash a line is either complete or absent.

    ``length`` lines are valid, ``last`` is the last of them (None when empty). Lines beyond ``limit`` and a torn tail
    are overwritten by the next append.
    """

    def __init__(self, path: Path, seed: str, limit: int | None = None) -> None:
        """Read and check the lines of an existing file."""
        self.path, self.seed = path, seed
        self.length = 0
        self.last: Line | None = None
        for line in read_journal(path, seed, torn_ok=True):
            if limit is not None and self.length >= limit:
                break
            self.length, self.last = self.length + 1, line

    @property
    def digest(self) -> str:
        """Digest of everything appended so far."""
        return self.seed if self.last is None else self.last.digest

    def append(self, body: Mapping[str, Any]) -> None:
        """Add a line; it is on the disk when this returns."""
        start = 0 if self.last is None else self.last.end
        text, chained = format_line(body, self.digest)
        write_at(self.path, start, text, truncate=True)
        sync([self.path] if start else [self.path, self.path.parent])
        self.length, self.last = self.length + 1, Line(body=body, digest=chained, end=start + len(text))
