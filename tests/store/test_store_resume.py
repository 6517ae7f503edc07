"""A run that is killed anywhere resumes and ends byte-identical; memory does not grow with rounds."""

from __future__ import annotations

import functools
import inspect
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import store_cases as cases

from fedprint.store.layout import StoreLayout
from fedprint.store.reader import UpdateStore
from fedprint.store.writer import StoreWriter
from fedprint.types import FedprintError

LAYOUT = replace(cases.LAYOUT, precision="float16")


class Killed(BaseException):
    """Stands for a kill: nothing in the library may catch it."""


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """Make the ``step``-th call that changes the disk the last one; a write gets half its bytes out first."""
    calls = [0]

    def watch(name: str) -> None:
        real = getattr(os, name)

        def call(*args: object) -> object:
            calls[0] += 1
            if calls[0] == step and name == "pwrite":
                real(args[0], bytes(args[1])[: len(args[1]) // 2], args[2])
            if calls[0] >= step:
                raise Killed
            return None if name == "fsync" else real(*args)

        monkeypatch.setattr(os, name, call)

    for name in ("pwrite", "fsync", "replace", "ftruncate", "posix_fallocate"):
        watch(name)
    return lambda: calls[0]


def test_a_crash_at_every_write_step_leaves_no_trace(tmp_path: Path) -> None:
    cases.run(tmp_path / "whole", LAYOUT)
    whole, step, finished = cases.contents(tmp_path / "whole"), 0, False
    while not finished:
        step += 1
        folder = tmp_path / str(step)
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, step)
            try:
                cases.run(folder, LAYOUT)
                finished = True
            except Killed:
                pass
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda fd: None)
            cases.run(folder, LAYOUT)
        assert cases.contents(folder) == whole, f"after a crash at step {step}"
    assert step > 60


def test_crashes_in_a_row_leave_no_trace(tmp_path: Path) -> None:
    cases.run(tmp_path / "whole", LAYOUT)
    finished = False
    for _ in range(200):
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, 24)
            try:
                cases.run(tmp_path / "again", LAYOUT)
                finished = True
                break
            except Killed:
                pass
    assert finished
    assert cases.contents(tmp_path / "again") == cases.contents(tmp_path / "whole")


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_torn_last_journal_line_is_a_round_redone(tmp_path: Path, cut: int) -> None:
    cases.run(tmp_path / "whole", LAYOUT)
    cases.run(tmp_path / "torn", LAYOUT, stop_after=3)
    path = tmp_path / "torn" / "observed" / "journal.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    assert UpdateStore.open(path.parent, partial=True).rounds == 2
    with StoreWriter.open(tmp_path / "torn", LAYOUT) as writer:
        assert writer.next_round == 2
        assert all((writer.latest_params()[name] == cases.params(2)[name]).all() for name in cases.SHAPES)
        assert writer.metrics() == [{"round": t, **cases.metrics(t)} for t in range(2)]
    cases.run(tmp_path / "torn", LAYOUT)
    assert cases.contents(tmp_path / "torn") == cases.contents(tmp_path / "whole")


def alone(test: Callable[[Path], None]) -> Callable[[Path], None]:
    """Run a test that forks in a pytest of its own: a fork of a process with running threads may never wake up."""

    @functools.wraps(test)
    def run(tmp_path: Path) -> None:
        if os.environ.get("FEDPRINT_TEST_ALONE"):
            test(tmp_path)
            return
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"{inspect.getfile(test)}::{test.__name__}",
        ]
        env = {**os.environ, "FEDPRINT_TEST_ALONE": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200, check=False)
        assert done.returncode == 0, done.stdout

    return run


def in_child(work: Callable[[], object]) -> int:
    """Start ``work`` in a process of its own; it exits 0 when it returned."""
    if (child := os.fork()) == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


@alone
@pytest.mark.slow
def test_ten_real_kills_leave_no_trace(tmp_path: Path) -> None:
    long = replace(LAYOUT, rounds=16)
    cases.run(tmp_path / "whole", long)
    whole, hits = cases.contents(tmp_path / "whole"), 0
    for trial in range(10):
        rng, folder = random.Random(trial), tmp_path / str(trial)
        child = in_child(lambda folder=folder: cases.run(folder, long))
        wait_for(folder / "observed" / "journal.jsonl", rng.uniform(0, 0.8) * len(whole["observed/journal.jsonl"]))
        time.sleep(rng.uniform(0, 0.003))
        os.kill(child, signal.SIGKILL)
        hits += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        cases.run(folder, long)
        assert cases.contents(folder) == whole, f"trial {trial}"
    assert hits >= 5, "the kills came too late to show anything"


def wait_for(path: Path, size: float) -> None:
    end = time.monotonic() + 30
    while not (path.exists() and path.stat().st_size >= size) and time.monotonic() < end:
        time.sleep(0.0002)


@alone
def test_a_file_size_limit_is_named_before_training(tmp_path: Path) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(FedprintError, match=r"layers/.*: file size limit reached: \d+ bytes needed"):
            StoreWriter.open(tmp_path, LAYOUT)

    assert os.waitpid(in_child(work), 0)[1] == 0


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@alone
def test_memory_does_not_grow_with_rounds(tmp_path: Path) -> None:
    shapes = {"a": (500_000,), "b": (100,)}
    layout = StoreLayout(rounds=40, cohort=2, shapes=shapes, kept=("a", "b"), fingerprint="x")
    one = cases.params(0)["body.weight"].flatten()
    update = {"a": one.repeat(1000)[:500_000].clone(), "b": one[:100].clone()}

    def work() -> None:
        with StoreWriter.open(tmp_path, layout) as writer:
            writer.set_initial(update)
            for round in range(layout.rounds):
                if round == 5:
                    early = resident_kib()
                first, second = cases.observations(0)[:2]
                seen = [
                    replace(o, round=round, obs_id=2 * round + k, update=update) for k, o in enumerate((first, second))
                ]
                facts = [replace(t, obs_id=2 * round + k) for k, t in enumerate(cases.truths(0)[:2])]
                writer.append(round, seen, facts, update, {})
            assert resident_kib() - early < 8 << 10, "160 MB were written"
            writer.finalise()
        store = UpdateStore.open(tmp_path / "observed")
        for block in store.blocks(columns=20_000):
            block @ block.T
            assert resident_kib() - early < 64 << 10, "160 MB are read"

    assert os.waitpid(in_child(work), 0)[1] == 0
