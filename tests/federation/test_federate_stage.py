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
from pathlib import Path

import pytest

from fedprint.kinds.federation.config import dump_yaml, load_experiment
from fedprint.kinds.federation.stages import federate, prepare
from fedprint.kinds.federation.stages.paths import artifacts, open_job

PROJECT = Path(__file__).parents[2]
JOURNAL = "observed/journal.jsonl"
STAGE = """
from fedprint.kinds.federation.stages import federate
from fedprint.kinds.federation.stages.paths import open_job
federate.run(open_job("quickstart", "random", 0))
"""
TINY = ("data.users=6", "data.images=40", "data.background_users=2", "federation.backend=sequential",
        "federation.fraction=0.5", "federation.central_epochs=0",
        "defences=[{name: noise, sigma: [0, 0.001]}, {name: mm-aug, alpha: [0, 0.5], clusters: 5}]")  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own with a prepared tiny experiment."""
    for name in ("pyproject.toml", "dvc.yaml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPRINT_ROOT", str(tmp_path))
    return tmp_path


def prepare_tiny(rounds: int) -> None:
    config = load_experiment(PROJECT, "quickstart", assignments=[*TINY, f"federation.rounds={rounds}"])
    target = artifacts("quickstart") / "config.yaml"
    target.parent.mkdir(parents=True)
    target.write_text(dump_yaml(config), encoding="utf-8")
    prepare.run(open_job("quickstart", "random", 0))


def launch(threads: int = 1) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return subprocess.Popen([sys.executable, "-c", STAGE], env=environment, stdout=subprocess.DEVNULL)


def finish(process: subprocess.Popen[bytes]) -> None:
    assert process.wait(timeout=300) == 0


def outputs(workspace: Path) -> dict[str, bytes]:
    """Return every file of the stage: observed, truth, questions, utility."""
    folder = workspace / artifacts("quickstart") / "updates" / "random-0"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_two_processes_with_one_thread_and_with_two_give_the_same_bytes(workspace: Path) -> None:
    prepare_tiny(rounds=8)
    finish(launch(threads=2))
    other = outputs(workspace)
    federate.run(open_job("quickstart", "random", 0))  # sets one thread itself
    assert outputs(workspace) == other
    assert {name.split("/")[0] for name in other} == {"observed", "public", "truth", "utility"}


@pytest.mark.slow
def test_ten_real_kills_of_the_stage_leave_no_trace(workspace: Path) -> None:
    """One run is killed again and again, at ten random moments and once more after its last round."""
    prepare_tiny(rounds=60)
    finish(launch())
    whole, rng, hits = outputs(workspace), random.Random(0), 0
    shutil.rmtree(workspace / artifacts("quickstart") / "updates")
    for trial, moment in enumerate(sorted(rng.uniform(0, 0.97) for _ in range(10))):
        process = launch(threads=1 + trial % 2)
        wait_until(process, lambda moment=moment: journal_size(workspace) >= moment * len(whole[JOURNAL]))
        time.sleep(rng.uniform(0, 0.02))
        hits += kill(process)
    late = launch()
    wait_until(late, lambda: JOURNAL in outputs(workspace))
    kill(late)
    finish(launch())
    assert outputs(workspace) == whole
    assert hits >= 8, "the kills came too late to show anything"


def kill(process: subprocess.Popen[bytes]) -> bool:
    """End the process at once and return whether it was still running."""
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def wait_until(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.0005)


def journal_size(workspace: Path) -> int:
    """Return the size of the journal of the store that grows, 0 when there is none."""
    sizes = [path.stat().st_size for path in workspace.glob("work/checkpoints/*/store/observed/journal.jsonl")]
    return sizes[0] if sizes else 0
