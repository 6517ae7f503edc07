"""Append and read speed of the update store beside a raw write and read of the same bytes.

Run: ``OMP_NUM_THREADS=1 python benchmarks/store.py [folder]``. About 10 s and 600 MB of disk.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from fedprint.store.layout import StoreLayout
from fedprint.store.reader import UpdateStore
from fedprint.store.writer import StoreWriter
from fedprint.types import Observation, Truth

Precision = Literal["float32", "float16"]
ROUNDS, COHORT = 20, 10
SIZES = {"20k in 2 layers": (10_000,) * 2, "1M in 2 layers": (500_000,) * 2, "1M in 50 layers": (20_000,) * 50}


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def forget(folder: Path) -> None:
    """Drop the folder's files from the page cache, so that the next read is cold."""
    for path in filter(Path.is_file, folder.rglob("*")):
        with path.open("rb") as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def raw_write(path: Path, row: np.ndarray) -> None:
    """Write the rows of a run to one file, a sync per round."""
    with path.open("wb", buffering=0) as handle:
        for _ in range(ROUNDS):
            for _ in range(COHORT):
                handle.write(row.data)
            os.fsync(handle.fileno())


def append_all(folder: Path, layout: StoreLayout, update: dict[str, torch.Tensor]) -> None:
    """Fill a store with the same update in every slot."""
    with StoreWriter.open(folder, layout) as writer:
        writer.set_initial(update)
        for round in range(ROUNDS):
            ids = range(round * COHORT, (round + 1) * COHORT)
            seen = [
                Observation(
                    obs_id=i, round=round, role="anonymous", num_examples=1, pseudonym=None, user_id=None, update=update
                )
                for i in ids
            ]
            facts = [Truth(obs_id=i, user_id=i, device_id=str(i)) for i in ids]
            writer.append(round, seen, facts, update, {})
        writer.finalise()


def measure(folder: Path, sizes: tuple[int, ...], precision: Precision) -> list[float]:
    """Return MB/s of float32 updates: raw write, append, raw cold read, cold read, warm read, verify."""
    shapes = {f"layer{i}": (size,) for i, size in enumerate(sizes)}
    update = {name: torch.randn(shape) for name, shape in shapes.items()}
    layout = StoreLayout(
        rounds=ROUNDS, cohort=COHORT, shapes=shapes, kept=tuple(shapes), fingerprint="x", precision=precision
    )
    raw = folder / "raw"
    times = [seconds(lambda: raw_write(raw, torch.cat(list(update.values())).numpy()))]
    times += [seconds(lambda: append_all(folder / "store", layout, update))]
    forget(folder)
    times += [seconds(lambda: np.fromfile(raw, np.float32))]
    store = UpdateStore.open(folder / "store" / "observed", verify=False)
    times += [seconds(store.matrix), seconds(store.matrix), seconds(store.verify)]
    return [4e-6 * sum(sizes) * ROUNDS * COHORT / t for t in times]


def main() -> None:
    """Print one line per size and precision."""
    names = ["raw write", "append", "ratio", "raw read", "cold read", "ratio", "warm read", "verify"]
    print(f"{'MB/s of float32 updates':30}", *(f"{name:>10}" for name in names))
    precisions: tuple[Precision, ...] = ("float32", "float16")
    for title, sizes in SIZES.items():
        for precision in precisions:
            with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
                raw, append, raw_read, cold, warm, verify = measure(Path(folder), sizes, precision)
            cells = [raw, append, append / raw, raw_read, cold, cold / raw_read, warm, verify]
            print(f"{title + ', ' + precision:30}", *(f"{c:10.2f}" if c < 10 else f"{c:10.0f}" for c in cells))


if __name__ == "__main__":
    main()
