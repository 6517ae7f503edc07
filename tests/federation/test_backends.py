"""Every backend gives what ``sequential`` gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import federation_cases as cases
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fedprint import params as algebra
from fedprint.federation import backends
from fedprint.federation.backends import fastest, make_backend, on_one_machine, trial
from fedprint.federation.vectorised import Vectorised, default_block
from fedprint.kinds.federation.config import FederationConfig
from fedprint.types import ClientJob, ClientResult, Examples, FedprintError, LocalOptimiser, LocalTraining, Params

OTHERS = ("threaded:3", "vectorised", "vectorised:1", "vectorised:3", "vectorised:100")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work is slower on many threads, above all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def jobs(kind: str, t: int = 0) -> list[ClientJob]:
    return [
        ClientJob(device_id=f"d{i}", examples=cases.examples(kind, n, seed=i), seed=1000 * t + i)
        for i, n in enumerate(cases.SIZES)
    ]


def mean_of(results: list[ClientResult]) -> Params:
    return algebra.weighted_mean([r.update for r in results], [r.num_examples for r in results])


@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize("name", OTHERS)
def test_a_backend_equals_sequential_each_round_from_a_common_state(name: str, kind: str) -> None:
    net = cases.model(kind)
    params: Params = cases.start(net)
    reference, other = make_backend("sequential", net), make_backend(name, net)
    for t in range(3):
        expected = list(reference.run(jobs(kind, t), params, cases.TRAINING))
        results = list(other.run(jobs(kind, t), params, cases.TRAINING))
        assert [r.device_id for r in results] == [job.device_id for job in jobs(kind)]
        assert [r.num_examples for r in results] == list(cases.SIZES)
        for e, f in zip(expected, results, strict=True):
            assert min(float(tensor.abs().max()) for tensor in e.update.values()) > 1e-4
            assert cases.distance(e.update, f.update) < 1e-5, (t, e.device_id)
            assert f.loss == pytest.approx(e.loss, abs=1e-5)
        params = algebra.add(params, mean_of(expected))


@pytest.mark.parametrize("kind", cases.KINDS)
def test_a_backend_equals_sequential_in_float64_over_many_rounds(kind: str) -> None:
    of = cases.plan(rounds=32, training=LocalTraining(epochs=1, batch_size=5, lr=0.1))
    reference = cases.federated(kind, "sequential", of, dtype=torch.float64)
    recorded = cases.federated(kind, "vectorised:3", of, dtype=torch.float64)
    for t in range(33):
        assert cases.distance(reference.globals[t], recorded.globals[t]) < 1e-12, t
    assert cases.distance(reference.globals[0], reference.globals[32]) > 1e-2
    assert recorded.globals[32]["head.weight"].dtype == torch.float64
    assert [m["loss"] for m in recorded.metrics()] == pytest.approx([m["loss"] for m in reference.metrics()], abs=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_noise_on_gradients_is_the_same_on_every_backend(name: str) -> None:
    """Clients of unequal size: one that has ended draws no more, and its update stays as it is."""
    net = cases.model("cnn", torch.float64)
    params, all_jobs = cases.start(net), [to_float64(job) for job in jobs("cnn")]
    loud = replace(cases.TRAINING, noise=0.3)
    expected = list(make_backend("sequential", net).run(all_jobs, params, loud))
    clean = list(make_backend("sequential", net).run(all_jobs, params, cases.TRAINING))
    results = list(make_backend(name, net).run(all_jobs, params, loud))
    assert max(cases.distance(e.update, f.update) for e, f in zip(expected, results, strict=True)) < 1e-10
    assert min(cases.distance(e.update, c.update) for e, c in zip(expected, clean, strict=True)) > 1e-2


@pytest.mark.parametrize("name", ["sequential", *OTHERS])
def test_results_come_in_job_order_and_depend_on_their_own_job_only(name: str) -> None:
    net = cases.model("cnn", torch.float64)
    params, all_jobs = cases.start(net), [to_float64(job) for job in jobs("cnn")]
    backend = make_backend(name, net)
    forward = list(backend.run(all_jobs, params, cases.TRAINING))
    backward = list(backend.run(all_jobs[::-1], params, cases.TRAINING))[::-1]
    alone = [next(iter(backend.run([job], params, cases.TRAINING))) for job in all_jobs]
    for job, a, b, c in zip(all_jobs, forward, backward, alone, strict=True):
        assert a.device_id == b.device_id == c.device_id == job.device_id
        assert max(cases.distance(a.update, b.update), cases.distance(a.update, c.update)) < 1e-12


def to_float64(job: ClientJob) -> ClientJob:
    return ClientJob(device_id=job.device_id, examples={**job.examples, "x": job.examples["x"].double()}, seed=job.seed)


@pytest.mark.parametrize("name", ["sequential", "vectorised"])
def test_the_received_parameters_are_left_alone(name: str) -> None:
    net = cases.model("cnn")
    params = cases.start(net)
    before = {n: tensor.clone() for n, tensor in params.items()}
    first = list(make_backend(name, net).run(jobs("cnn"), params, cases.TRAINING))
    kept = [{n: tensor.clone() for n, tensor in r.update.items()} for r in first]
    list(make_backend(name, net).run(jobs("cnn", t=1), params, cases.TRAINING))
    assert cases.distance(before, params) == 0
    assert max(cases.distance(r.update, k) for r, k in zip(first, kept, strict=True)) == 0


@pytest.mark.parametrize("name", ["sequential", "vectorised"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_one_client_one_step_full_batch_is_central_sgd(name: str, kind: str) -> None:
    net, lr = cases.model(kind, torch.float64), 0.3
    data, before = cases.examples(kind, 9, seed=1, dtype=torch.float64), cases.start(net)
    step = LocalTraining(epochs=1, batch_size=9, lr=lr)
    alone = cases.device(kind, 0, 1)
    population = [type(alone)(device_id="a", user_id=0, role="prior", examples=data)]
    recorded = cases.federated(kind, name, cases.plan(1, 1, step), dtype=torch.float64, population=population)
    assert cases.distance(recorded.globals[1], central_step(net, before, data, lr)) < 1e-12
    assert cases.distance(recorded.globals[1], before) > 1e-3


@pytest.mark.parametrize("name", ["sequential", "vectorised:3"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_one_step_full_batch_of_all_clients_is_central_sgd_on_the_pooled_data(name: str, kind: str) -> None:
    """Holds because the server weights by n_k: with the plain mean over clients it would not."""
    net, lr = cases.model(kind, torch.float64), 0.3
    population = cases.devices(kind, (6, 1, 3, 11), torch.float64)
    pooled = {c: torch.cat([d.examples[c] for d in population]) for c in ("x", "y")}
    step = LocalTraining(epochs=1, batch_size=100, lr=lr)
    recorded = cases.federated(kind, name, cases.plan(1, 4, step), dtype=torch.float64, population=population)
    assert cases.distance(recorded.globals[1], central_step(net, cases.start(net), pooled, lr)) < 1e-12


def central_step(net: torch.nn.Module, before: Params, data: Examples, lr: float) -> dict[str, Tensor]:
    cases.load(net, before)
    gradients = torch.autograd.grad(net(data).mean(), list(net.parameters()))
    return {name: before[name] - lr * g for name, g in zip(before, gradients, strict=True)}


@pytest.mark.parametrize(("kind", "plain"), [("mlp", "sequential"), ("cnn", "vectorised:4")])
def test_threads_change_no_bit(kind: str, plain: str) -> None:
    net = cases.model(kind)
    params = cases.start(net)
    one, three = (list(make_backend(n, net).run(jobs(kind), params, cases.TRAINING)) for n in (plain, "threaded:3"))
    assert [r.device_id for r in one] == [r.device_id for r in three]
    assert all(torch.equal(a.update[name], b.update[name]) for a, b in zip(one, three, strict=True) for name in params)


def test_the_trial_times_every_candidate_and_moves_nothing() -> None:
    net = cases.model("cnn")
    params = cases.start(net)
    seconds = trial(net, jobs("cnn")[:3], params, cases.TRAINING)
    assert list(seconds) == ["sequential", "threaded", "vectorised:4", "vectorised:8"]
    assert all(s > 0 for s in seconds.values())
    assert cases.distance(cases.start(net), params) == 0
    assert all(make_backend(name, net).name == name.partition(":")[0] for name in seconds)


def test_clients_of_a_trial_are_as_unequal_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    net, sizes = cases.model("mlp"), set[tuple[int, ...]]()
    whole = jobs("mlp")[0].examples
    ragged = [
        ClientJob(
            device_id=str(n),
            examples={name: column[:1].expand(n, *column.shape[1:]) for name, column in whole.items()},
            seed=n,
        )
        for n in (4, 40, 400)
    ]

    class Watched:
        def run(self, work: list[ClientJob], *_: object) -> Iterator[ClientResult]:
            sizes.add(tuple(len(job.examples["y"]) for job in work))
            return iter(())

    monkeypatch.setattr(backends, "make_backend", lambda *_: Watched())
    trial(net, ragged, cases.start(net), replace(cases.TRAINING, batch_size=10))
    assert sizes == {(1, 2, 20)}


def test_a_trial_does_not_count_the_waiting_for_a_busy_core(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clocks:
        """Seconds of the clock and of the processor, which pass only where an executor says so."""

        clock = processor = 0.0

        def perf_counter(self) -> float:
            return self.clock

        def process_time(self) -> float:
            return self.processor

    class Waiting:
        def __init__(self, name: str) -> None:
            self.waits = 0.1 if name == "sequential" else 0.0

        def run(self, *_: object) -> Iterator[ClientResult]:
            clocks.processor += 0.002
            clocks.clock += 0.002 + self.waits
            return iter(())

    clocks = Clocks()
    monkeypatch.setattr(backends, "time", clocks)
    monkeypatch.setattr(backends, "make_backend", lambda name, _model: Waiting(name))
    net = cases.model("mlp")
    seconds = trial(net, jobs("mlp")[:3], cases.start(net), cases.TRAINING)
    assert fastest({name: s for name, s in seconds.items() if name != "threaded"}) == "sequential"
    assert seconds["threaded"] < 0.5 * seconds["sequential"]


def test_another_executor_than_the_plain_loop_must_be_clearly_faster() -> None:
    times = {"sequential": 1.0, "threaded": 1.2, "vectorised:8": 0.97}
    assert fastest(times) == "sequential"
    assert fastest({**times, "threaded": 0.6}) == "threaded"


UNKNOWN = ("fast", "vectorised:x", "vectorised:0", "sequential:2", "threaded:0", "", "ray:0", "ray:threaded", "ray:2:")


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_backend_is_named_with_the_choices(name: str) -> None:
    choices = "sequential, threaded[:WORKERS], vectorised[:BLOCK], ray[:WORKERS][:EXECUTOR] or auto"
    with pytest.raises(FedprintError, match=re.escape(f"'{name}'; use {choices}")):
        make_backend(name, cases.model("cnn"))


def test_a_configuration_takes_the_backends_that_exist() -> None:
    names = ("auto", "sequential", "threaded", "threaded:2", "vectorised", "vectorised:8")
    on_ray = ("ray", "ray:2", "ray:sequential", "ray:vectorised", "ray:2:sequential", "ray:2:vectorised:8")
    assert all(FederationConfig(backend=name).backend == name for name in (*names, *on_ray))
    for name in UNKNOWN:
        with pytest.raises(ValidationError):
            FederationConfig(backend=name)
    executors = ("vectorised", "vectorised", "sequential", "vectorised", "sequential", "vectorised:8")
    assert tuple(map(on_one_machine, (*names, *on_ray))) == (*names, *executors)


def test_a_stack_without_room_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Vectorised, *_: object) -> Iterator[ClientResult]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Vectorised, "run", full)
    net = cases.model("mlp")
    assert fastest(trial(net, jobs("mlp")[:3], cases.start(net), cases.TRAINING)) in ("sequential", "threaded")


def test_a_gpu_stacks_more() -> None:
    net = cases.model("cnn")
    assert (default_block("cpu", net), default_block("cuda", net)) == (8, 512)


def test_a_gpu_stacks_fewer_clients_of_a_large_model() -> None:
    large = cases.model("cnn")
    large.register_parameter("table", torch.nn.Parameter(torch.empty(1 << 20, 24)))  # 96 MiB: ten times in a GiB
    assert default_block("cuda", large) == 8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["sequential", "vectorised:3"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_a_gpu_gives_what_the_cpu_gives(name: str, kind: str) -> None:
    net = cases.model(kind, torch.float64).to("cuda")
    population = [cases.on(device, "cuda") for device in cases.devices(kind, dtype=torch.float64)]
    writer = cases.MemoryWriter({n: tensor.cpu() for n, tensor in cases.start(net).items()})
    cases.run(population, make_backend(name, net), writer, cases.plan())
    expected = cases.federated(kind, dtype=torch.float64)
    assert cases.distance({n: p.cpu() for n, p in writer.globals[3].items()}, expected.globals[3]) < 1e-9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_a_replayed_step_is_that_of_one_client_after_another(optimiser: LocalOptimiser) -> None:
    """Cohorts of several sizes and clients of many sizes share a few captured shapes; Adam's steps are not captured."""
    net = cases.model("mlp", torch.float64).to("cuda")
    params, training = cases.start(net), replace(cases.TRAINING, optimiser=optimiser)
    population = [cases.on(device, "cuda") for device in cases.devices("mlp", dtype=torch.float64)]
    jobs = [ClientJob(device_id=d.device_id, examples=d.examples, seed=n) for n, d in enumerate(population)]
    stacked = Vectorised(net, 8)
    for cohort in (jobs, jobs[:5], jobs[:3], jobs):
        expected = make_backend("sequential", net).run(cohort, params, training)
        for one, other in zip(stacked.run(cohort, params, training), expected, strict=True):
            assert one.device_id == other.device_id and one.loss == pytest.approx(other.loss, rel=1e-9)
            assert cases.distance(one.update, other.update) < 1e-9
    assert (len(stacked._replayed) == 0) == (optimiser == "adam")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_norms_and_means_on_a_gpu_are_those_of_the_cpu() -> None:
    here = [{"a": torch.randn(3, 2), "b": torch.randn(5)} for _ in range(300)]
    there = [{name: tensor.to("cuda") for name, tensor in update.items()} for update in here]
    assert algebra.norms(there) == pytest.approx(algebra.norms(here), rel=1e-6)
    weights = [float(n) for n in range(1, 301)]
    mean, expected = algebra.weighted_mean(there, weights), algebra.weighted_mean(here, weights)
    assert cases.distance({name: tensor.cpu() for name, tensor in mean.items()}, expected) < 1e-5
