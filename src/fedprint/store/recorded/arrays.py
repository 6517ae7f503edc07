"""Arrays in npy, npz, safetensors and raw files: headers are checked before memory is taken, nothing is unpickled."""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedprint.store.recorded.findings import Unreadable, quoted, regular
from fedprint.types import Floats

SUFFIXES = {"npy": (".npy", ".f32"), "npz": (".npz",), "safetensors": (".safetensors",)}
PIECE = 1 << 20
"""Numbers that are read at once."""
_HEADER = 10_000
"""Bytes of an npy header at most, as in NumPy."""
_DEFLATE = 1032
"""Deflate makes data at most this many times smaller: a member that declares more is a bomb."""
_AGAIN = "write the file again"
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "|i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1"}  # fmt: skip
BROKEN = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
"""What a damaged file makes the standard library raise."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An array as its header declares it: its numbers begin at byte ``start`` of its stream, in C order or not."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int = 0
    fortran: bool = False
    brain: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


class ArraysFile:
    """The arrays of one open file by name; numbers are read in pieces, so memory stays small."""

    def __init__(self, arrays: Mapping[str, Stored], streams: Mapping[str, IO[bytes]]) -> None:
        """Not for callers: use :func:`opened`."""
        self.arrays, self._streams = arrays, streams

    def pieces(self, name: str, row: int | None = None) -> Iterator[tuple[int, Floats]]:
        """Yield (first number, numbers) of an array in C order, or of one row of it, which it stores in C order.

        Rows are fastest in rising order.
        Raises Unreadable where the file ends too early or its checksum is wrong.
        """
        stored, stream = self.arrays[name], self._streams[name]
        size = math.prod(stored.shape if row is None else stored.shape[1:])
        try:
            if stored.fortran:
                yield 0, _fortran(stored, stream)
                return
            stream.seek(stored.start + (row or 0) * size * stored.dtype.itemsize)
            for first in range(0, size, PIECE):
                yield first, _numbers(stored, _exactly(stream, stored.dtype, min(PIECE, size - first)))
            stream.read(1 if row is None else 0)  # at its end a zip member checks its sum
        except BROKEN as error:
            raise Unreadable(f"array '{quoted(name)}' is damaged ({quoted(error)})", _AGAIN) from None


@contextmanager
def opened(path: Path, width: int | None = None) -> Iterator[ArraysFile]:
    """Open an npy, npz, safetensors or raw float32 file (rows of ``width`` numbers) and check all its headers.

    An npy or raw file has one array, of the name "". Raises Unreadable for anything that is not what it declares.
    """
    with ExitStack() as stack:
        try:
            if path.suffix == ".npz":
                file = _npz(path, stack)
            else:
                stream = stack.enter_context(regular(path).open("rb"))
                size = path.stat().st_size
                if path.suffix == ".safetensors":
                    arrays = _safetensors(stream, size)
                else:
                    arrays = {"": _raw(size, width) if path.suffix == ".f32" else _npy(stream, size)}
                file = ArraysFile(arrays, dict.fromkeys(arrays, stream))
            if not file.arrays:
                raise Unreadable("holds no array", _AGAIN)
        except BROKEN as error:
            raise Unreadable(f"cannot be read ({quoted(error)})", _AGAIN) from None
        yield file


def _npy(stream: IO[bytes], size: int) -> Stored:
    """Return what the header of an npy stream of ``size`` bytes declares."""
    start = stream.read(8)
    if start[:6] != np.lib.format.MAGIC_PREFIX or start[6:7] not in (b"\1", b"\2"):
        raise Unreadable("is not an npy file", "write it with numpy.save")
    width = 2 if start[6] == 1 else 4
    length = stream.read(width)
    header = int.from_bytes(length, "little")
    if len(length) < width or header > min(_HEADER, size):
        raise Unreadable(f"declares a header of {header:,} bytes", _AGAIN)
    shape, fortran, dtype = _header(width, length + stream.read(header))
    stored = Stored(shape=shape, dtype=dtype, start=8 + width + header, fortran=fortran and len(shape) > 1)
    _check_numbers(stored)
    if stored.start + stored.nbytes != size:
        declared = f"declares {stored.nbytes:,} bytes of numbers, holds {size - stored.start:,}"
        raise Unreadable(declared, _AGAIN)
    return stored


@lru_cache(maxsize=256)
def _header(width: int, text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type of an npy header; the files of a recording share few different ones."""
    read = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings(action="ignore"):
            return read(io.BytesIO(text), max_header_size=_HEADER)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, OverflowError) as error:
        raise Unreadable(f"has a damaged header ({quoted(' '.join(str(error).split()))})", _AGAIN) from None


def _raw(size: int, width: int | None) -> Stored:
    if not width or size == 0 or size % (4 * width):
        raise Unreadable(f"has {size:,} bytes, not rows of float32", "give 'layers' whose sizes add up to one row")
    return Stored(shape=(size // (4 * width), width), dtype=np.dtype("<f4"))


def _check_numbers(stored: Stored) -> None:
    if stored.dtype.hasobject:
        raise Unreadable("holds pickled objects, which are never opened", "store arrays of numbers")
    if stored.dtype.kind not in "fiu" or stored.dtype.itemsize > 8:
        raise Unreadable(f"is of type {quoted(stored.dtype)}", "store float16, float32, float64 or whole numbers")
    if any(not isinstance(n, int) or n < 0 for n in stored.shape) or math.prod(stored.shape) == 0:
        raise Unreadable(f"has shape {quoted(stored.shape)}", "leave out arrays without numbers")


def _npz(path: Path, stack: ExitStack) -> ArraysFile:
    archive = stack.enter_context(zipfile.ZipFile(regular(path)))
    members = archive.infolist()
    size = path.stat().st_size
    if sum(member.compress_size for member in members) > size:
        raise Unreadable("has members that overlap", _AGAIN)
    arrays: dict[str, Stored] = {}
    streams: dict[str, IO[bytes]] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        try:
            _check_member(member, arrays)
            streams[name] = stack.enter_context(archive.open(member))
            arrays[name] = _npy(streams[name], member.file_size)
        except Unreadable as error:
            raise Unreadable(f"array '{quoted(name)}' {error.what}", error.remedy) from None
    return ArraysFile(arrays, streams)


def _check_member(member: zipfile.ZipInfo, before: Mapping[str, Stored]) -> None:
    if not member.filename.endswith(".npy") or member.filename.removesuffix(".npy") in before:
        raise Unreadable("is no array or occurs twice", "write the file with numpy.savez")
    if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unreadable("is encrypted or compressed by other means", "write the file with numpy.savez_compressed")
    most = member.compress_size * (1 if member.compress_type == zipfile.ZIP_STORED else _DEFLATE) + 64
    if member.file_size > most:
        declared = f"declares {member.file_size:,} bytes in {member.compress_size:,}"
        raise Unreadable(declared, _AGAIN)


def _safetensors(stream: IO[bytes], size: int) -> dict[str, Stored]:
    header = int.from_bytes(stream.read(8), "little")
    if size < 10 or header > size - 8:
        raise Unreadable(f"declares a header of {header:,} bytes in a file of {size:,}", _AGAIN)
    try:
        entries = json.loads(stream.read(header))
        entries.pop("__metadata__", None)
        arrays = {str(name): _tensor(entry, 8 + header) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"has a damaged header ({quoted(repr(error))})", _AGAIN) from None
    end = 8 + header
    for name, stored in sorted(arrays.items(), key=lambda pair: pair[1].start):
        if stored.start != end:
            raise Unreadable(f"array '{quoted(name)}' begins at byte {stored.start:,} instead of {end:,}", _AGAIN)
        end += stored.nbytes
    if end != size:
        raise Unreadable(f"declares {end:,} bytes, holds {size:,}", _AGAIN)
    return arrays


def _tensor(entry: Mapping[str, Any], start: int) -> Stored:
    name, (first, last), shape = entry["dtype"], entry["data_offsets"], tuple(entry["shape"])
    if name not in _TYPES:
        raise Unreadable(f"has an array of type {quoted(name)}", f"store one of {', '.join(_TYPES)}")
    stored = Stored(shape=shape, dtype=np.dtype(_TYPES[name]), start=start + first, brain=name == "BF16")
    _check_numbers(stored)
    if last - first != stored.nbytes:
        raise Unreadable(f"gives {last - first:,} bytes to an array of shape {shape}", _AGAIN)
    return stored


def _exactly(stream: IO[bytes], dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Return ``count`` numbers; the memory grows with what the stream really holds."""
    data = stream.read(count * dtype.itemsize)
    while len(data) < count * dtype.itemsize and (more := stream.read(count * dtype.itemsize - len(data))):
        data += more
    if len(data) < count * dtype.itemsize:
        raise EOFError("it ends too early")
    return np.frombuffer(data, dtype)


def _numbers(stored: Stored, values: NDArray[Any]) -> Floats:
    """Return stored numbers as float32; what is too large for it becomes infinite."""
    if stored.brain:
        return (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def _fortran(stored: Stored, stream: IO[bytes]) -> Floats:
    """Return an array that is stored column by column, read as a whole, in C order."""
    stream.seek(stored.start)
    pieces = [
        _numbers(stored, _exactly(stream, stored.dtype, min(PIECE, math.prod(stored.shape) - first)))
        for first in range(0, math.prod(stored.shape), PIECE)
    ]
    return np.concatenate(pieces).reshape(stored.shape, order="F").reshape(-1)
