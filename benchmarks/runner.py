"""The cost of running a stage in a separate process: a fork of a server beside a new interpreter.

``python benchmarks/runner.py``: seconds from the start of the server to its first answer, then seconds per empty stage
through the cache, the sandbox and a fork, and beside them an interpreter that imports the same code.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedprint.component import Component
from fedprint.kinds import PRELOADED
from fedprint.lab.graph import Graph, Job, Stage, Task, Work
from fedprint.lab.runner import Lab
from fedprint.lab.workers.pool import LocalPool

FORKS, INTERPRETERS = 50, 3


class Nothing(Component):
    """A configuration without settings."""

    def section_digest(self, *sections: str) -> str:
        """Return a constant."""
        return "nothing"

    def digest(self) -> str:
        """Return a constant."""
        return "nothing"


def touch(task: Task) -> None:
    """Write an empty output."""
    task.at("nothing").touch()


def _parse(values: Mapping[str, Any]) -> Nothing:
    return Nothing()


EMPTY = Work(
    path="runner:EMPTY",
    graph=Graph((Stage(name="empty", run="runner:touch", outputs=("nothing",)),)),
    parse=_parse,
)


def seconds(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    """Print the three costs."""
    jobs = [
        Job(work=EMPTY, config=Nothing(), prior="none", seed=seed, data="none", label=f"{seed}")
        for seed in range(FORKS + 1)
    ]
    with TemporaryDirectory() as folder, LocalPool((*PRELOADED, "runner")) as pool:
        lab = Lab(root=Path(folder), pool=pool)
        first = seconds(lambda: lab.one(jobs[0], title="bench"))
        forks = [seconds(lambda job=job: lab.one(job, title="bench")) for job in jobs[1:]]  # type: ignore[misc]
    command = [sys.executable, "-c", f"import {PRELOADED[0]}"]
    interpreters = [seconds(lambda: subprocess.run(command, check=True)) for _ in range(INTERPRETERS)]
    print(f"server started, first stage   {first:8.3f} s")
    print(f"stage in a fork (median)      {statistics.median(forks):8.3f} s")
    print(f"stage in an interpreter       {statistics.median(interpreters):8.3f} s")


if __name__ == "__main__":
    main()
