"""Damaged files: what is tried on every reader, and what no reader may do.

Many more than the tests try: ``PYTHONPATH=tests/helpers:tests/store python tests/helpers/fuzzing.py --inputs 100000``.
"""

from __future__ import annotations

import argparse
import gzip
import resource
import shutil
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


def damaged_file(path: Path, rng: Random) -> None:
    """Damage a file in place; of a gzip mostly what is packed in it, else its checksum would hide all readers."""
    content = path.read_bytes()
    if path.suffix == ".gz" and rng.random() < 0.9:
        path.write_bytes(gzip.compress(damage(gzip.decompress(content), rng), compresslevel=1, mtime=0))
    else:
        path.write_bytes(damage(content, rng))


def survive(reader: Reader, folder: Path, inputs: int, seed: int) -> Mapping[str, int]:
    """Try damaged inputs; return how many were refused and how many read.

    Raises AssertionError with the seed of an input that led to anything but a FedprintError of one line, took longer
    than :data:`SECONDS`, or touched a file.
    """
    sound = folder / "sound"
    sound.mkdir(parents=True)
    reader.make(sound)
    reader.read(sound)
    ended = {"refused": 0, "read": 0}
    with limited_memory():
        for number in range(inputs):
            rng = Random(f"{seed}/{number}")
            tried = folder / "tried"
            shutil.copytree(sound, tried)
            damaged_file(tried / rng.choice(reader.damaged), rng)
            ended[_try(reader, tried, f"seed {seed}/{number}")] += 1
            shutil.rmtree(tried)
    assert sorted(path.name for path in folder.iterdir()) == ["sound"], "a reader wrote beside its folder"
    return ended


def _try(reader: Reader, folder: Path, name: str) -> str:
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
