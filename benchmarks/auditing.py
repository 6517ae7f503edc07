"""An audit of recorded updates: 10,000 of 20,000 numbers in a file each, from the files to the report."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import ROOT, Cell, Section, say, seconds

USERS, ROUNDS = 200, 25
SHAPES = {
    "conv": (3_996,),
    "hidden.weight": (120, 120),
    "hidden.bias": (120,),
    "head.weight": (10, 147),
    "head.bias": (10,),
}
QUICK_USERS = 20
SIGNAL = 0.05
"""Standard deviation of what a user's updates have in common, in that of what they do not."""


def record(folder: Path, users: int) -> None:
    """Record two devices for each user in every round; the owner of one is known, that of the other is the truth."""
    from fedprint.record import Recorder

    rng = np.random.default_rng(0)
    width = sum(int(np.prod(shape)) for shape in SHAPES.values())
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES.values()])[:-1]
    habits = SIGNAL * rng.standard_normal((users, width), dtype=np.float32)
    with Recorder(folder) as recorder:
        for round in range(ROUNDS):
            for device in range(2 * users):
                numbers = 1e-3 * (habits[device % users] + rng.standard_normal(width, dtype=np.float32))
                parts = zip(SHAPES.items(), np.split(numbers, ends), strict=True)
                update = {name: part.reshape(shape) for (name, shape), part in parts}
                known = f"user {device}" if device < users else None
                recorder.record(round, f"device {device}", update, num_examples=20 + device % 7, user=known)
        recorder.write_truth({f"device {device}": f"user {device - users}" for device in range(users, 2 * users)})


def audit(folder: Path, scratch: Path, out: Path) -> None:
    """Audit a recording and write its report, as ``fedprint audit`` does."""
    from fedprint.records import run as records
    from fedprint.reports.pages.records import write_records

    write_records(records.run(folder, scratch=scratch), out)


def measure(quick: bool) -> Section:
    """Time recording and the audit, on the clock and in processor time, once each."""
    users = QUICK_USERS if quick else USERS
    row = f"{2 * users * ROUNDS:,} updates of 20,000 numbers, {users} users"
    with tempfile.TemporaryDirectory(dir=ROOT / "work") as place:
        folder = Path(place) / "recorded"
        recorded = seconds(lambda: record(folder, users), time.perf_counter)
        say(f"  recorded in {recorded:.0f} s")
        began = time.process_time()
        whole = seconds(lambda: audit(folder, Path(place) / "scratch", Path(place) / "report"), time.perf_counter)
        processor = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    values = {"recording, s": recorded, "audit, s": whole, "audit, processor s": processor, "peak memory, GiB": peak}
    cells = tuple(Cell(row=row, column=column, value=value) for column, value in values.items())
    return Section(cells=cells, notes=("On the clock of the whole machine; all attacks that can be run.",))
