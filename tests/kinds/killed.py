"""Runs of an experiment that are killed at random times, driver, fork server and all, and repeated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from fedprint.kinds.base import Request

RUN = """
import sys
from pathlib import Path
from fedprint.kinds import driver, requests
driver.run(requests.request_for(Path(sys.argv[1]), sys.argv[2], fast=True), jobs=int(sys.argv[3]))
"""


def run_killed(asked: Request, *, jobs: int, kills: int, seed: int) -> int:
    """Start the run ``kills`` times and kill it while it computes, then let it end; return how many kills it met."""
    rng, met = random.Random(seed), 0
    for _ in range(kills):
        process = _start(asked, jobs)
        before = _progress(asked.root)
        while process.poll() is None and _progress(asked.root) == before:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 3))
        process.send_signal(signal.SIGKILL)
        met += process.wait() == -signal.SIGKILL
    assert _start(asked, jobs).wait() == 0
    return met


def _start(asked: Request, jobs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUN, str(asked.root), str(asked.path), str(jobs)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _progress(root: Path) -> set[str]:
    """Return the results and the unfinished ones that are there."""
    return {f"{path.parent.name}/{path.name}" for path in (root / "work" / "cache").glob("*/*")}
