"""Append and read speed of the update store beside a raw write and read of the same bytes: the disk's ceiling.

On the disk of ``work/``, because a folder for temporary files may be in memory. A full run needs 1 GB there.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from benchmarks.measuring import ROOT, Cell, Section, median, ratio, say, seconds
from fedprint.store.layout import StoreLayout
from fedprint.store.reader import UpdateStore
from fedprint.store.writer import StoreWriter
from fedprint.types import Observation, Truth

Precision = Literal["float32", "float16"]
ROUNDS, COHORT = 20, 10
FOLDER = ROOT / "work"
SIZES = {"20k in 2 layers": (10_000,) * 2, "1M in 2 layers": (500_000,) * 2, "1M in 50 layers": (20_000,) * 50}


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
        for round in range(layout.rounds):
            ids = range(round * layout.cohort, (round + 1) * layout.cohort)
            seen = [
                Observation(
                    obs_id=i, round=round, role="anonymous", num_examples=1, pseudonym=None, user_id=None, update=update
                )
                for i in ids
            ]
            facts = [Truth(obs_id=i, user_id=i, device_id=str(i)) for i in ids]
            writer.append(round, seen, facts, update, {})
        writer.finalise()


def speeds(folder: Path, sizes: tuple[int, ...], precision: Precision) -> dict[str, float]:
    """Return MB/s of float32 updates of a raw write and read, the store's append, reads and verification."""
    shapes = {f"layer{i}": (size,) for i, size in enumerate(sizes)}
    update = {name: torch.randn(shape) for name, shape in shapes.items()}
    layout = StoreLayout(
        rounds=ROUNDS, cohort=COHORT, shapes=shapes, kept=tuple(shapes), fingerprint="x", precision=precision
    )
    raw, clock = folder / "raw", time.perf_counter
    row = torch.cat(list(update.values())).numpy()
    times = {"raw write": seconds(lambda: raw_write(raw, row), clock)}
    times["append"] = seconds(lambda: append_all(folder / "store", layout, update), clock)
    forget(folder)
    times["raw read"] = seconds(lambda: np.fromfile(raw, np.float32), clock)
    store = UpdateStore.open(folder / "store" / "observed", verify=False)
    times["cold read"] = seconds(store.matrix, clock)
    times["warm read"] = seconds(store.matrix, clock)
    times["verify"] = seconds(store.verify, clock)
    return {name: 4e-6 * sum(sizes) * ROUNDS * COHORT / t for name, t in times.items()}


def measure(quick: bool) -> Section:
    """Compare append and read with the disk's own, in turns."""
    chosen = dict(list(SIZES.items())[:1]) if quick else SIZES
    precisions: tuple[Precision, ...] = ("float32", "float16")
    cells: list[Cell] = []
    for title, sizes in chosen.items():
        for precision in precisions:
            turns = []
            for _ in range(3 if quick else 7):
                with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
                    turns.append(speeds(Path(folder), sizes, precision))
            columns = {name: [turn[name] for turn in turns] for name in turns[0]}
            row = f"{title}, {precision}"
            cells += [median(row, f"{name} MB/s", values) for name, values in columns.items()]
            cells += [ratio(row, "append over raw write", columns["append"], columns["raw write"])]
            cells += [ratio(row, "cold read over raw read", columns["cold read"], columns["raw read"])]
            say(f"  {row}: append {cells[-2].text()} of a raw write, cold read {cells[-1].text()} of a raw read")
    note = f"MB of float32 updates a second on the clock; {ROUNDS} rounds of {COHORT} updates, a sync per round."
    return Section(cells=tuple(cells), notes=(note,))
