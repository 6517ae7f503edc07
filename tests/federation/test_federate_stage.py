"""The federate stage as a process: killed at any moment or given other threads, it ends with the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from tiny_project import CHECKOUT, TINY, Project, run_stages

from fedprint.lab.graph import Task

JOURNAL = "observed/journal.jsonl"
WRITTEN = ("observed", "public", "truth", "utility", "model")
STAGE = """
import sys
from pathlib import Path
from tiny_project import Project
from fedprint.kinds.federation.stages import federate
federate.run(Project(root=Path(sys.argv[1])).task("tiny"))
"""
SMALL = {
    "data": {**TINY["data"], "users": 6, "images": 40, "background_users": 2},
    "defences": [{"name": "noise", "sigma": [0, 0.001]}, {"name": "mm-aug", "alpha": [0, 0.5], "clusters": 5}],
}


def prepared(project: Project, rounds: int) -> Task:
    federation = {**TINY["federation"], "central_epochs": 0, "rounds": rounds}
    return project.run("tiny", {**TINY, **SMALL, "federation": federation}, until="choose")


def launch(project: Project, threads: int = 1) -> subprocess.Popen[bytes]:
    threaded = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment = {**os.environ, **threaded, "PYTHONPATH": str(CHECKOUT / "tests" / "helpers")}
    command = [sys.executable, "-c", STAGE, str(project.root)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def finish(process: subprocess.Popen[bytes]) -> None:
    assert process.wait(timeout=300) == 0


def outputs(task: Task) -> dict[str, bytes]:
    """Return every file that the stage wrote, but for times."""
    files = {
        f"{name}/{path.relative_to(task.at(name))}": path
        for name in WRITTEN
        for path in sorted(task.at(name).rglob("*"))
    }
    return {name: path.read_bytes() for name, path in files.items() if path.is_file()}


@pytest.mark.slow
def test_two_processes_with_one_thread_and_with_two_give_the_same_bytes(project: Project) -> None:
    task = prepared(project, rounds=8)
    finish(launch(project, threads=2))
    other = outputs(task)
    run_stages(task, first="federate", until="federate")  # sets one thread itself
    assert outputs(task) == other
    assert {name.split("/")[0] for name in other} == set(WRITTEN)


@pytest.mark.slow
def test_ten_real_kills_of_the_stage_leave_no_trace(project: Project) -> None:
    """One run is killed again and again, at ten random moments and once more after its last round."""
    task = prepared(project, rounds=60)
    finish(launch(project))
    whole, rng, hits = outputs(task), random.Random(0), 0
    for folder in (task.scratch, *map(task.at, WRITTEN)):
        shutil.rmtree(folder)
    task.scratch.mkdir()
    for trial, moment in enumerate(sorted(rng.uniform(0, 0.97) for _ in range(10))):
        process = launch(project, threads=1 + trial % 2)
        wait_until(process, lambda moment=moment: journal_size(task) >= moment * len(whole[JOURNAL]))
        time.sleep(rng.uniform(0, 0.02))
        hits += kill(process)
    late = launch(project)
    wait_until(late, (task.at("observed") / "journal.jsonl").exists)
    kill(late)
    finish(launch(project))
    assert outputs(task) == whole
    assert hits >= 8, "the kills came too late to show anything"


def kill(process: subprocess.Popen[bytes]) -> bool:
    """End the process at once and return whether it was still running."""
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def wait_until(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.0005)


def journal_size(task: Task) -> int:
    """Return the size of the journal of the store that grows, 0 when there is none."""
    path = task.scratch / "federation" / "store" / JOURNAL
    return path.stat().st_size if path.exists() else 0
