from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import federation_cases as cases
import pytest
import torch

from fedprint.defences.points import defend_data
from fedprint.defences.secret_head import SecretHead
from fedprint.federation.backends import make_backend
from fedprint.federation.spread import Spread
from fedprint.models.dual_head import DualHead
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, ClientResult, Params

EXECUTORS = ("sequential", "threaded:2", "vectorised:3")
TWO = ("cpu", "cpu")


def jobs(kind: str) -> list[ClientJob]:
    population = cases.devices(kind)
    return [ClientJob(device_id=d.device_id, examples=d.examples, seed=i) for i, d in enumerate(population)]


def assert_equal(some: Sequence[ClientResult], others: Sequence[ClientResult]) -> None:
    for a, b in zip(some, others, strict=True):
        assert (a.device_id, a.num_examples, a.loss) == (b.device_id, b.num_examples, b.loss)
        for mine, yours in ((a.update, b.update), (a.private, b.private)):
            assert list(mine) == list(yours)
            assert all(torch.equal(mine[name], yours[name]) for name in mine)


@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize("kind", cases.KINDS)
def test_two_devices_give_the_bits_of_one(name: str, kind: str) -> None:
    net = cases.model(kind)
    params = cases.start(net)
    one, two = (list(make_backend(name, net, d).run(jobs(kind), params, cases.TRAINING)) for d in ((), TWO))
    assert_equal(one, two)
    assert any(tensor.any() for result in two for tensor in result.update.values())


@pytest.mark.parametrize("name", EXECUTORS)
def test_two_devices_keep_each_clients_secret_head(name: str) -> None:
    net = DualHead(cases.model("cnn"), bits=8)
    params = {name: p.detach().clone() for name, p in net.public_parameters().items()}
    head = SecretHead(bits=8, alpha2=0.5)
    coded = defend_data(cases.devices("cnn"), [head], {}, 0, ("anonymous",))
    work = [
        ClientJob(
            device_id=d.device_id,
            examples=d.examples,
            seed=i,
            private=net.draw_private(torch_rng(i)) if d.role == "anonymous" else {},
        )
        for i, d in enumerate(coded)
    ]
    one, two = (list(make_backend(name, net, d).run(work, params, cases.TRAINING)) for d in ((), TWO))
    assert_equal(one, two)
    assert any(result.private for result in two)


def test_every_device_trains_whole_blocks_at_the_same_time() -> None:
    net = cases.model("mlp")
    together, seen = threading.Barrier(2, timeout=30), []

    class Watched:
        name = "watched"

        def __init__(self, label: str) -> None:
            self.label, self.inner = label, make_backend("vectorised:4", net)

        def blocks(self, work: Sequence[ClientJob]) -> list[list[int]]:
            return self.inner.blocks(work)  # type: ignore[attr-defined, no-any-return]

        def run(self, work: Sequence[ClientJob], params: Params, training: object) -> object:
            together.wait()
            seen.append((self.label, len(work)))
            return self.inner.run(work, params, training)  # type: ignore[arg-type]

    work = [replace(job, examples=cases.examples("mlp", 5, seed=job.seed)) for job in jobs("mlp")]
    spread = Spread([("cpu", Watched("a")), ("cpu", Watched("b"))])  # type: ignore[list-item]
    results = list(spread.run(work, cases.start(net), cases.TRAINING))
    assert [result.device_id for result in results] == [job.device_id for job in work]
    assert sorted(seen) == [("a", 4), ("b", 4)]


def test_a_federation_on_two_devices_records_the_same_bits() -> None:
    found = []
    for devices in ((), TWO):
        net = cases.model("cnn")
        writer = cases.MemoryWriter(cases.start(net))
        cases.run(list(cases.devices("cnn")), make_backend("vectorised:2", net, devices), writer, cases.plan())
        found.append(writer)
    for mine, yours in zip(*(writer.globals for writer in found), strict=True):
        assert all(torch.equal(mine[name], yours[name]) for name in mine)


def test_an_error_of_one_device_is_raised() -> None:
    net = cases.model("mlp")
    broken = [*jobs("mlp")[:3], ClientJob(device_id="broken", examples={"x": torch.zeros(2, 3)}, seed=0)]
    with pytest.raises(KeyError):
        list(make_backend("sequential", net, TWO).run(broken, cases.start(net), cases.TRAINING))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["sequential", "vectorised:3"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_data_and_results_stay_on_the_cpu_when_gpus_train(name: str, kind: str) -> None:
    net = cases.model(kind)
    params = cases.start(net)
    devices = tuple(f"cuda:{n}" for n in range(torch.cuda.device_count()))
    here = list(make_backend(name, net).run(jobs(kind), params, cases.TRAINING))
    there = list(make_backend(name, net, devices).run(jobs(kind), params, cases.TRAINING))
    for a, b in zip(here, there, strict=True):
        assert all(tensor.device.type == "cpu" for tensor in b.update.values())
        assert cases.distance(a.update, b.update) < 1e-3
