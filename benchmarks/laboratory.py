"""What the machinery around the science costs: a stage in a fork beside a new interpreter, the bootstrap over users."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measuring import Cell, Section, in_turns, median, ratio, seconds
from fedprint.component import Component
from fedprint.evaluation.intervals import mean_interval
from fedprint.kinds import PRELOADED
from fedprint.lab.graph import Graph, Job, Stage, Task, Work
from fedprint.lab.runner import Lab
from fedprint.lab.workers.pool import LocalPool
from fedprint.rng import numpy_rng

RESAMPLES = 2000


class Load(Component):
    """A job that computes for some processor seconds."""

    seconds: float = 0.0

    def section_digest(self, *sections: str) -> str:
        """Return what its result depends on."""
        return str(self.seconds)

    def digest(self) -> str:
        """Return what its result depends on."""
        return str(self.seconds)


def compute(task: Task) -> None:
    """Compute as long as the job says, then write an empty output."""
    end = time.process_time() + task.config.seconds
    while time.process_time() < end:
        pass
    task.at("nothing").touch()


def _parse(values: Mapping[str, Any]) -> Load:
    return Load.model_validate(values)


LOAD = Work(
    path="benchmarks.laboratory:LOAD",
    graph=Graph((Stage(name="load", run="benchmarks.laboratory:compute", outputs=("nothing",)),)),
    parse=_parse,
)


def loads(number: int, each: float = 0.0) -> list[Job]:
    """Return jobs of one stage."""
    job = partial(Job, work=LOAD, config=Load(seconds=each), prior="none", data="none")
    return [job(seed=seed, label=f"{seed}") for seed in range(number)]


def run_all(workers: int, each: float, number: int) -> float:
    """Return the seconds on the clock in which ``workers`` forks run so many jobs, the server's start left out."""
    with TemporaryDirectory() as folder, LocalPool((*PRELOADED, "benchmarks.laboratory")) as pool:
        lab = Lab(root=Path(folder), pool=pool, jobs=workers)
        first, *others = loads(number + 1, each)
        lab.one(first, title="warm-up")
        return seconds(lambda: lab.run(others, title="bench"), time.perf_counter)


def measure(quick: bool) -> Section:
    """Time an empty stage through the cache, the sandbox and a fork; and the bootstrap beside a plain loop."""
    with TemporaryDirectory() as folder, LocalPool((*PRELOADED, "benchmarks.laboratory")) as pool:
        lab = Lab(root=Path(folder), pool=pool)
        forks = [
            seconds(lambda job=job: lab.one(job, title="bench"), time.perf_counter)  # type: ignore[misc]
            for job in loads(11 if quick else 51)
        ]
    command = [sys.executable, "-c", f"import {PRELOADED[0]}"]
    started = [seconds(lambda: subprocess.run(command, check=True), time.perf_counter) for _ in range(3)]
    cells = [
        Cell(row="server started and first stage", column="s on the clock", value=forks[0]),
        median("an empty stage in a fork", "s on the clock", forks[1:]),
        median("a new interpreter with the same imports", "s on the clock", started),
    ]
    for users in (60, 600):
        values = numpy_rng(0, "values").random(users)
        engines = {
            "ours": lambda turn, v=values: mean_interval(v, numpy_rng(turn), resamples=RESAMPLES),
            "loop": lambda turn, v=values: by_loop(v, turn),
        }
        spent = in_turns(engines, 5 if quick else 31, time.process_time)
        title = f"bootstrap over {users} users, {RESAMPLES:,} resamples"
        cells += [
            median(title, "CPU ms", [1000 * s for s in spent["ours"]]),
            ratio(title, "over a plain loop's", spent["ours"], spent["loop"]),
        ]
    return Section(cells=tuple(cells))


def by_loop(values: np.ndarray, seed: int) -> np.ndarray:
    """Return the percentiles of the mean over draws of all users with replacement."""
    rng = numpy_rng(seed, "loop")
    means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(RESAMPLES)]
    return np.asarray(np.percentile(means, [2.5, 97.5]))
