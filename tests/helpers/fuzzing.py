"""Damaged files: what is tried on every reader, and what no reader may do.

Many more than the tests try, of every reader (helpers are found by PYTHONPATH):
``PYTHONPATH=src:tests/helpers:tests/store:tests/store/recorded python tests/helpers/fuzzing.py --inputs 100000``.
"""

from __future__ import annotations

import argparse
import gzip
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from fedprint.errors import FedprintError

SECONDS = 1.0
"""Processor time that one input may take."""
MEMORY = 1 << 30
"""Bytes that one process may take beyond what it had at its start: thousands of times the size of any file here."""
_WORDS = b'-1 0 1e308 NaN null true [] {} "" 99999999999999999999 18446744073709551615 ../../../etc/passwd /dev/zero'
TOKENS = (*_WORDS.split(), b"\x00", b"\xff\xfe", b"\xc3\x28", b"'", b'"', b"\n", b",", b":", b"<script>")


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A reader of files: ``make`` writes a sound folder, ``read`` reads it. ``damaged`` are the files to damage."""

    make: Callable[[Path], None]
    read: Callable[[Path], object]
    damaged: tuple[str, ...]


def damage(content: bytes, rng: Random) -> bytes:
    """Return the content with one to four changes: bits, cuts, repeats, exchanged numbers, foreign words."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        where = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and data:
            data[where % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[where:]
        elif kind == 2:
            del data[where : where + rng.randint(1, 40)]
        elif kind == 3:
            data[where:where] = data[where : where + rng.randint(1, 60)] * rng.randint(1, 3)
        elif kind == 4:
            data[where:where] = rng.choice(TOKENS)
        else:
            _exchange_number(data, where, rng)
    return bytes(data)


def _exchange_number(data: bytearray, where: int, rng: Random) -> None:
    """Put a token in the place of the next number."""
    digits = b"0123456789"
    first = next((i for i in range(where, len(data)) if data[i] in digits), None)
    if first is not None:
        last = next((i for i in range(first, len(data)) if data[i] not in digits), len(data))
        data[first:last] = rng.choice(TOKENS)


def damaged(name: str, content: bytes, rng: Random) -> bytes:
    """Return a file's damaged content; of a gzip mostly what it packs, else its checksum would hide all readers."""
    if name.endswith(".gz") and rng.random() < 0.9:
        return gzip.compress(damage(gzip.decompress(content), rng), compresslevel=1, mtime=0)
    return damage(content, rng)


def survive(reader: Reader, folder: Path, inputs: int, seed: int) -> Mapping[str, int]:
    """Try damaged inputs; return how many were refused and how many read.

    Raises AssertionError with the seed of an input that led to anything but a FedprintError of one line, took longer
    than :data:`SECONDS`, or touched a file.
    """
    tried = folder / "tried"
    contents = sound_files(reader, tried)
    ended = {"refused": 0, "read": 0}
    with limited_memory():
        for number in range(inputs):
            rng = Random(f"{seed}/{number}")
            name = rng.choice(reader.damaged)
            (tried / name).write_bytes(damaged(name, contents[name], rng))
            ended[attempt(reader, tried, f"seed {seed}/{number}")] += 1
            (tried / name).write_bytes(contents[name])
    reader.read(tried)  # nothing else was changed
    assert sorted(path.name for path in folder.iterdir()) == ["tried"], "a reader wrote beside its folder"
    return ended


def sound_files(reader: Reader, folder: Path) -> Mapping[str, bytes]:
    """Write a sound folder, read it, and return the content of the files to damage."""
    folder.mkdir(parents=True)
    reader.make(folder)
    reader.read(folder)
    return {name: (folder / name).read_bytes() for name in reader.damaged}


def attempt(reader: Reader, folder: Path, name: str) -> str:
    """Return whether a folder was "refused" or "read". Raises AssertionError as :func:`survive` does."""
    before = sorted(folder.rglob("*"))
    try:
        with within(SECONDS):
            reader.read(folder)
        refusal = ""
    except FedprintError as error:
        refusal = str(error).strip()
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    assert "\n" not in refusal, f"{name}: an error of several lines: {refusal}"
    assert sorted(folder.rglob("*")) == before, f"{name}: a reader wrote"
    return "refused" if refusal else "read"


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in a block that takes more processor time."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def limited_memory(most: int = MEMORY) -> Iterator[None]:
    """Refuse memory beyond what the process has and ``most`` bytes, inside the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def main() -> None:
    """Try many inputs on one reader or on all."""
    from readers import READERS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--reader", choices=sorted(READERS), action="append")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.reader or sorted(READERS):
        with tempfile.TemporaryDirectory() as folder:
            ended = survive(READERS[name], Path(folder) / "fuzz", given.inputs, given.seed)
        print(f"{name}: {given.inputs} inputs, {ended['refused']} refused, {ended['read']} read", flush=True)


if __name__ == "__main__":
    sys.exit(main())
