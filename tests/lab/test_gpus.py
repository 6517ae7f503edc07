from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_work import job

from fedprint.lab import gpus
from fedprint.lab.gpus import VISIBLE, Gpus, best_device, only, torch_devices
from fedprint.lab.graph import Graph, Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.workers.pool import LocalPool

REPORT = f"import os\n\ndef seen(call, send):\n    return os.environ.get({VISIBLE!r})\n"


@pytest.fixture
def reporting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalPool]:
    (tmp_path / "report_gpus.py").write_text(REPORT, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with LocalPool(["report_gpus"]) as pool:
        yield pool


def test_the_least_used_gpus_are_lent_and_shared_where_there_are_more_calls() -> None:
    both = Gpus(2)
    with ExitStack() as held:
        lent = [held.enter_context(both.lent(1)) for _ in range(5)]
        assert lent == [(0,), (1,), (0,), (1,), (0,)]
    with both.lent(1) as first, both.lent(2) as rest:
        assert (first, rest) == ((0,), (0, 1))
    with Gpus(0).lent(3) as none:
        assert none == ()


def test_names_of_gpus_are_those_that_this_process_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)
    assert only([1, 3]) == {VISIBLE: "1,3"}
    monkeypatch.setenv(VISIBLE, "4, GPU-7e,6")
    assert only([0, 1]) == {VISIBLE: "4,GPU-7e"}
    assert only([]) == {VISIBLE: ""}


def test_a_call_sees_only_the_gpus_that_it_is_given(reporting: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)

    def seen(given: tuple[int, ...]) -> str | None:
        found: str | None = reporting.run("report_gpus:seen", {}, lambda message: None, None, given)
        return found

    assert [seen((1,)), seen((0, 2)), seen(())] == ["1", "0,2", ""]


class Asked:
    """A pool that writes down what each call is given, waits until ``parties`` run at a time, and computes nothing."""

    def __init__(self, parties: int) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self._barrier = threading.Barrier(parties, timeout=30)

    def run(self, function, call, send, log=None, gpus=None):  # type: ignore[no-untyped-def]
        self.calls.append((call["device"], gpus))
        self._barrier.wait()
        for path in call["paths"].values():
            Path(path).write_text(json.dumps({}), encoding="utf-8")

    def stop(self) -> None:
        self._barrier.abort()


@pytest.mark.parametrize(
    ("count", "jobs", "at_a_time", "shares"),
    [(0, 2, 2, {()}), (2, 2, 2, {(0,), (1,)}), (4, 2, 2, {(0, 1), (2, 3)}), (3, 1, 8, {(0, 1, 2)}), (1, 2, 2, {(0,)})],
)
def test_jobs_are_spread_over_the_gpus(
    tmp_path: Path, count: int, jobs: int, at_a_time: int, shares: set[tuple[int, ...]]
) -> None:
    pool = Asked(jobs)
    with Lab(root=tmp_path, pool=pool, jobs=at_a_time, gpus=Gpus(count)) as lab:
        assert lab.device == ("cuda" if count else "cpu")
        ended = lab.run([job(f"toy {n}", seed=n, n=n) for n in range(jobs)], title="toy")
    assert all(isinstance(one, Done) for one in ended), ended
    assert {given for _, given in pool.calls} == shares
    assert {device for device, _ in pool.calls} == {lab.device}


def unsettled(n: int) -> Job:
    """Return a toy job without the stage that settles something for its machine."""
    toy = job(n=n)
    stages = (toy.work.graph.stage("number"), toy.work.graph.stage("add"))
    return replace(toy, work=replace(toy.work, graph=Graph(stages)))


def test_a_lab_without_gpus_borrows_whole_jobs_that_one_computed(tmp_path: Path) -> None:
    def calls(*, gpus: int, borrows: bool, n: int = 0) -> list[str]:
        pool = Asked(1)
        with Lab(root=tmp_path, pool=pool, gpus=Gpus(gpus), borrows=borrows) as lab:
            done = lab.one(unsettled(n), title="toy")
        assert all(path.exists() for path in done.outputs.values())
        return [device for device, _ in pool.calls]

    made = calls(gpus=1, borrows=False)
    assert set(made) == {"cuda"}
    assert calls(gpus=0, borrows=True) == []
    assert calls(gpus=0, borrows=True, n=1) == ["cpu"] * len(made), "no GPU computed this job"
    assert calls(gpus=0, borrows=False) == ["cpu"] * len(made), "accelerator: cpu takes nothing from a GPU"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_confined_stage_computes_on_a_gpu(tmp_path: Path, pool: LocalPool) -> None:
    with Lab(root=tmp_path, pool=pool, gpus=Gpus(1)) as lab:
        assert lab.one(job(end="multiply"), title="toy").outputs["last"].exists()


def test_a_gpu_rounds_as_a_processor_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(gpus, "gpu_count", lambda: 0)
    assert (best_device(), torch.backends.cudnn.allow_tf32, torch_devices("cpu")) == ("cpu", True, ())
    monkeypatch.setattr(gpus, "gpu_count", lambda: 2)
    assert (best_device(), torch.backends.cudnn.allow_tf32) == ("cuda", False)
    assert (torch_devices("cuda"), torch_devices("cpu")) == (("cuda:0", "cuda:1"), ())
