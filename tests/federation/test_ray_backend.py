"""Clients on a real Ray: the bits of the local executor, also when a worker or a node is lost in the middle."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import federation_cases as cases
import psutil
import pytest
import torch

from fedprint.federation.backends import make_backend, open_backend
from fedprint.federation.ray_backend import RayBackend
from fedprint.models.base import FedModule
from fedprint.models.dual_head import DualHead
from fedprint.types import Backend, ClientJob, ClientResult, FedprintError

LONG = replace(cases.TRAINING, epochs=40)
"""Local training that takes long enough to be killed in it."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    pytest.importorskip("ray", reason="Ray is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def jobs(kind: str = "cnn") -> list[ClientJob]:
    return [ClientJob(device_id=d.device_id, examples=d.examples, seed=i) for i, d in enumerate(cases.devices(kind))]


def same_bits(a: Sequence[ClientResult], b: Sequence[ClientResult]) -> bool:
    return len(a) == len(b) > 0 and all(
        (x.device_id, x.num_examples, x.loss) == (y.device_id, y.num_examples, y.loss)
        and all(torch.equal(x.update[name], y.update[name]) for name in x.update)
        and all(torch.equal(x.private[name], y.private[name]) for name in x.private)
        and (x.update.keys(), x.private.keys()) == (y.update.keys(), y.private.keys())
        for x, y in zip(a, b, strict=True)
    )


def training() -> list[psutil.Process]:
    """Return the processes in which workers train just now; Ray names them after what they do."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if (process.cmdline() or [""])[0] == "ray::Worker.train":
                found.append(process)
    return found


def soon(condition: Callable[[], object], seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


@pytest.mark.slow
def test_ray_gives_the_bits_of_one_machine() -> None:
    net = cases.model("cnn")
    params = cases.start(net)
    local = make_backend("vectorised:3", net)
    few = jobs()
    with open_backend("ray:2:vectorised:3", net) as backend:
        for work in (cases.TRAINING, replace(cases.TRAINING, noise=0.1)):
            assert same_bits(list(backend.run(few, params, work)), list(local.run(few, params, work)))
        assert list(backend.run([], params, cases.TRAINING)) == []
    import ray

    assert not ray.is_initialized()
    soon(lambda: not [p for p in psutil.Process().children(recursive=True) if "raylet" in p.name()])


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_no_bit() -> None:
    net = cases.model("cnn")
    params, few = cases.start(net), jobs()
    with open_backend("ray:2:vectorised:3", net) as backend, ThreadPoolExecutor(1) as thread:
        results = thread.submit(lambda: list(backend.run(few, params, LONG)))
        soon(training)
        victim = training()[0]
        victim.kill()
        assert same_bits(results.result(), list(make_backend("vectorised:3", net).run(few, params, LONG)))
        assert not victim.is_running()


def secret() -> tuple[DualHead, list[ClientJob]]:
    """Return a network with secret heads and jobs of clients, every second of which has one."""
    net = DualHead(cases.model("mlp"), bits=4, alpha1=0.5, margin=1.0)
    found = []
    for i, job in enumerate(jobs("mlp")):
        n = len(job.examples["y"])
        code = {"code": torch.ones(n, 4), "code_weight": torch.full((n,), 0.5)} if i % 2 else {}
        private = net.draw_private(torch.Generator().manual_seed(i)) if code else {}
        found.append(replace(job, examples={**job.examples, **code}, private=private))
    return net, found


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("executor", ["sequential", "vectorised:3"])
def test_every_executor_and_number_of_workers_gives_the_same_bits(workers: int, executor: str) -> None:
    net, few = secret()
    params = {name: p.detach().clone() for name, p in net.public_parameters().items()}
    expected = list(make_backend(executor, net).run(few, params, cases.TRAINING))
    assert sum(bool(result.private) for result in expected) == 4
    with open_backend(f"ray:{workers}:{executor}", net) as backend:
        for _ in range(2):
            assert same_bits(list(backend.run(few, params, cases.TRAINING)), expected)
        # The same devices with other examples: what workers hold is not taken for them.
        other = [replace(job, examples={**job.examples, "x": 1 - job.examples["x"]}) for job in few]
        changed = list(backend.run(other, params, cases.TRAINING))
        assert same_bits(changed, list(make_backend(executor, net).run(other, params, cases.TRAINING)))
        assert not same_bits(changed, expected)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_round_on_several_nodes_outlives_one_of_them(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    net = cases.model("cnn")
    params, few = cases.start(net), jobs()
    expected = list(make_backend("vectorised:3", net).run(few, params, LONG))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        workers = [cluster.add_node(num_cpus=1) for _ in range(nodes)]
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        with open_backend("ray:vectorised:3", net) as backend, ThreadPoolExecutor(1) as thread:
            short = list(make_backend("vectorised:3", net).run(few, params, cases.TRAINING))
            assert same_bits(list(backend.run(few, params, cases.TRAINING)), short)
            results = thread.submit(lambda: list(backend.run(few, params, LONG)))
            soon(training)
            cluster.remove_node(workers[0], allow_graceful=False)
            if nodes == 1:
                cluster.add_node(num_cpus=1)
            assert same_bits(results.result(), expected)
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_a_cluster_without_room_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprint.federation.ray_backend.ROOM_S", 5.0)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        net = cases.model("mlp")
        with (
            open_backend("ray:1", net) as backend,
            pytest.raises(FedprintError, match=r"no worker found room .* lower number"),
        ):
            list(backend.run(jobs("mlp"), cases.start(net), cases.TRAINING))
    finally:
        cluster.shutdown()


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FedprintError, match=r"pip install 'fedprint\[ray\]'"):
        make_backend("ray", cases.model("mlp"))


@pytest.mark.slow
def test_clients_that_end_every_worker_are_an_error() -> None:
    def deadly(model: FedModule) -> Backend:
        class Deadly:
            name = "deadly"

            def run(self, *_: object) -> Iterator[ClientResult]:
                os._exit(1)

        return Deadly()

    net = cases.model("mlp")
    with (
        RayBackend(net, deadly, block=1, workers=1) as backend,
        pytest.raises(FedprintError, match="workers are lost again and again"),
    ):
        list(backend.run(jobs("mlp"), cases.start(net), cases.TRAINING))


@pytest.mark.slow
def test_the_programs_own_error_is_raised_at_once() -> None:
    def broken(model: FedModule) -> Backend:
        raise ValueError("no such executor")

    net = cases.model("mlp")
    with RayBackend(net, broken, block=1, workers=1) as backend, pytest.raises(ValueError, match="no such executor"):
        list(backend.run(jobs("mlp"), cases.start(net), cases.TRAINING))
