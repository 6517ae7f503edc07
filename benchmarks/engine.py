"""How fast the executors train clients, beside a plain PyTorch loop: W1 to W3, and every model that ships."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.measuring import Cell, Section, in_turns, median, one_core, ratio, say
from benchmarks.workloads import WORKLOADS, PlainLoop, Workload
from fedprint.federation.backends import fastest, make_backend, trial
from fedprint.federation.client import batch_schedule
from fedprint.federation.vectorised import default_block
from fedprint.lab.gpus import best_device
from fedprint.models.base import FedModule, initialise
from fedprint.models.components import (
    AlexNet,
    DlNet,
    FullyConnected,
    MobileNet,
    Model,
    NextWordLstm,
    OrientedGradients,
    SmallCnn,
    StarLstm,
    Vgg16,
)
from fedprint.models.networks import build_network, network_inputs
from fedprint.params import add, norm, weighted_mean
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, Examples, LocalTraining, Params

_CNN = tuple(f"{layer}.{kind}" for layer in ("conv1", "conv2", "head") for kind in ("weight", "bias"))
OURS: dict[str, tuple[Model, tuple[int, ...], int, tuple[str, ...]]] = {
    "W1": (SmallCnn(channels=(16, 32), hidden=0), (1, 28, 28), 10, _CNN),
    "W2": (FullyConnected(hidden=64), (784,), 10, ("fc1.weight", "fc1.bias", "head.weight", "head.bias")),
    "W3": (
        NextWordLstm(), (16,), 5000,
        ("embedding.weight", "lstm.weight_ih", "lstm.weight_hh", "lstm.bias", "head.weight", "head.bias"),
    ),
}  # fmt: skip
"""Each workload's model, shape and classes here, and the names of the plain network's weights in its order."""

GPU_COHORTS = {"W1": 1000, "W2": 10_000, "W3": 1000}
"""Clients of a round on a GPU, which has room for many; the plain loop trains a share of them there."""
GPU_TURNS, LOOP_SHARE = 5, 20
SHARE_NOTE = f"The loop and `sequential` train a {LOOP_SHARE}th of the cohort here; their times count so often."
GPU_BLOCKS = ("vectorised:64", "vectorised:256", "vectorised:1000")
"""Stacks to show beside those of the trial."""

SHIPPED: dict[str, tuple[Model, tuple[int, ...], int]] = {
    "cnn": (SmallCnn(), (1, 28, 28), 10),
    "mlp": (FullyConnected(), (1, 28, 28), 10),
    "oriented-gradients": (OrientedGradients(), (1, 28, 28), 10),
    "mobilenet": (MobileNet(width=0.25), (3, 32, 32), 10),
    "dlnet": (DlNet(), (3, 32, 32), 10),
    "alexnet": (AlexNet(), (3, 32, 32), 10),
    "vgg16": (Vgg16(), (3, 32, 32), 10),
    "lm": (NextWordLstm(), (16,), 5000),
    "stars": (StarLstm(), (50,), 2000),
}
"""Every model by name, with the shape of an example and the classes, or words, of its usual data."""


def measure(quick: bool) -> Section:
    """Compare the executors with the loop; every one must give the loop's mean update."""
    one_core()
    on_gpu = best_device() != "cpu"
    works = {n: on_a_gpu(w, GPU_COHORTS[n]) for n, w in WORKLOADS.items()} if on_gpu else WORKLOADS
    turns = GPU_TURNS if on_gpu else 6 if quick else 30
    parts = [workload(name, work, turns, LOOP_SHARE if on_gpu else 1) for name, work in works.items()]
    where = "time on the clock" if on_gpu else "processor time"
    notes = (
        f"Ratios of {where}, one thread: the loop's time over the executor's, above 1 is faster. `auto` is the "
        "executor that `backend: auto` chooses.",
        *(
            f"{name}: {work.title}; `auto` is {chosen}"
            for (name, work), (_, chosen) in zip(works.items(), parts, strict=True)
        ),
    )
    notes += (SHARE_NOTE,) if on_gpu else ()
    return Section(cells=tuple(cell for cells, _ in parts for cell in cells), notes=notes)


def measure_models(quick: bool) -> Section:
    """Compare the executor that auto chooses with a loop over the same module and with ``sequential``.

    Wanted: an upper end of at most 1.02 for every model.
    """
    one_core()
    cells = [cell for name in SHIPPED for cell in shipped(name, *((3, 4, 20) if quick else (30, 10, 40)))]
    note = (
        "Processor time of the executor that `auto` chooses over that of the plain loop (the same module, autograd, "
        "torch.optim.SGD) and over `sequential`, one thread. Wanted: an upper end of at most 1.02. No interval: `auto` "
        "chooses `sequential` itself."
    )
    return Section(cells=tuple(cells), notes=(note,))


def on_a_gpu(work: Workload, cohort: int) -> Workload:
    """Return a workload whose rounds have all of so many clients."""
    return replace(work, title=f"{work.title}; rounds of {cohort:,} clients", clients=cohort, cohort=cohort)


def jobs_of(clients: Sequence[Examples]) -> list[ClientJob]:
    """Return one round's jobs; the seed of a client is its position."""
    return [ClientJob(device_id=str(i), examples=data, seed=i) for i, data in enumerate(clients)]


def drawn(model: FedModule) -> dict[str, Tensor]:
    """Initialise a model and return a copy of its parameters, on the device that trains."""
    initialise(model, torch_rng(0, "model"), model.initial_gain)
    model.to(best_device())
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def auto(model: FedModule, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> tuple[str, list[str]]:
    """Return the executor that ``auto`` would choose for these clients, and all that it tries on one core."""
    times = trial(model, jobs, params, training)
    return fastest(times), [name for name in times if not name.startswith("threaded")]


def round_by(name: str, model: FedModule, training: LocalTraining) -> Callable[[Sequence[ClientJob], Params], Params]:
    """Return a round by an executor: it returns the mean update."""
    backend = make_backend(name, model)

    def run(jobs: Sequence[ClientJob], params: Params) -> Params:
        results = list(backend.run(jobs, params, training))
        return weighted_mean([r.update for r in results], [r.num_examples for r in results])

    return run


@dataclass(frozen=True, kw_only=True)
class Federation:
    """A workload ready to train: our model, its received parameters, and the jobs of each turn's round."""

    model: FedModule
    params: dict[str, Tensor]
    training: LocalTraining
    rounds: list[list[ClientJob]]
    loop: PlainLoop
    names: tuple[str, ...]

    @classmethod
    def of(cls, name: str, work: Workload, turns: int) -> Federation:
        """Return that of a workload by its name, on the device that trains."""
        config, shape, classes, names = OURS[name]
        model, device = build_network(config, shape, classes, False), best_device()
        clients = [{"x": x.to(device), "y": y.to(device)} for x, y in map(work.client, range(work.clients))]
        return cls(
            model=model,
            params=drawn(model),
            training=LocalTraining(epochs=1, batch_size=work.batch, lr=work.lr),
            rounds=[jobs_of([clients[number] for number in work.drawn(turn)]) for turn in range(turns)],
            loop=PlainLoop(work, device),
            names=names,
        )

    def by_loop(self, turn: int, few: int | None = None) -> dict[str, Tensor]:
        """Return the plain loop's mean update of a round, or of its first ``few`` clients."""
        received = [self.params[name] for name in self.names]
        mean = self.loop.round(received, [(job.examples["x"], job.examples["y"]) for job in self.rounds[turn][:few]])
        return dict(zip(self.names, mean, strict=True))


def workload(name: str, work: Workload, turns: int, loop_share: int = 1) -> tuple[list[Cell], str]:
    """Return the row of a workload, and the executor that auto chooses.

    The plain loop and ``sequential`` train the first of ``loop_share`` parts of the cohort; their times count so often.
    """
    ready, device, few = Federation.of(name, work, turns), best_device(), work.cohort // loop_share
    model, params, training, rounds = ready.model, ready.params, ready.training, ready.rounds

    def by_loop(turn: int) -> dict[str, Tensor]:
        return ready.by_loop(turn, few)

    chosen, tried = auto(
        model, rounds[0][: default_block(device, model)] if loop_share > 1 else rounds[0], params, training
    )
    tried = [*tried, *GPU_BLOCKS] if loop_share > 1 else tried
    engines: dict[str, Callable[[int], Params]] = {"loop": by_loop}
    for executor in dict.fromkeys((*tried, chosen)):
        run = round_by(executor, model, training)
        part = few if executor == "sequential" else work.cohort
        engines[executor] = lambda turn, run=run, part=part: run(rounds[turn][:part], params)  # type: ignore[misc]
        check_equal(f"{name}, {executor}", run(rounds[0][:few], params), by_loop(0))
        engines[executor](0)  # the warm-up
    spent = in_turns(engines, turns)
    for executor in ("loop", "sequential"):
        spent[executor] = [loop_share * seconds for seconds in spent.get(executor, ())]
    cells = [median(name, "loop, rounds/s", [1 / s for s in spent["loop"]])]
    cells += [ratio(name, "auto", spent["loop"], spent[chosen])]
    cells += [ratio(name, executor, spent["loop"], spent[executor]) for executor in engines if executor != "loop"]
    say(f"{name}: auto is {chosen}, {cells[1].text()} times the loop")
    return cells, chosen


def check_equal(title: str, mean: Params, reference: Params) -> None:
    """Raise a ValueError where two mean updates differ by more than float32 does: 1 % of the norm."""
    gap = norm(add(mean, reference, -1.0)) / norm(reference)
    if not gap < 0.01:
        raise ValueError(f"{title}: its mean update differs from the loop's by {gap:.1%} of the norm; correct it")


def example_clients(name: str, clients: int, n: int) -> tuple[FedModule, list[Examples], LocalTraining]:
    """Return a shipped model and made-up clients with n examples each."""
    config, shape, classes = SHIPPED[name]
    rng, made = torch_rng(0, name), list[Examples]()
    words = name in ("lm", "stars")
    for _ in range(clients):
        x = torch.randint(classes, (n, *shape), generator=rng) if words else torch.rand(n, *shape, generator=rng)
        y = torch.randint(5 if name == "stars" else classes, x.shape if name == "lm" else (n,), generator=rng)
        made.append({"x": network_inputs(config, x), "y": y.float() + 1 if name == "stars" else y})
    model = build_network(config, tuple(made[0]["x"].shape[1:]), classes, False)
    return model, made, LocalTraining(epochs=1, batch_size=10, lr=0.01)


def module_loop(model: FedModule, training: LocalTraining) -> Callable[[Sequence[ClientJob], Params], Params]:
    """Return a round as anybody would write it for this module: autograd, torch.optim.SGD, one client after another."""
    parameters = dict(model.named_parameters())

    def train(job: ClientJob, params: Params) -> Params:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(params[name])
        sgd = torch.optim.SGD(parameters.values(), lr=training.lr)
        for batch in batch_schedule(len(job.examples["y"]), training, job.seed):
            sgd.zero_grad()
            model({column: values[batch] for column, values in job.examples.items()}).mean().backward()
            sgd.step()
        return {name: parameter.detach() - params[name] for name, parameter in parameters.items()}

    def run(jobs: Sequence[ClientJob], params: Params) -> Params:
        return weighted_mean([train(job, params) for job in jobs], [len(job.examples["y"]) for job in jobs])

    return run


def shipped(name: str, turns: int, clients: int, n: int) -> list[Cell]:
    """Return the row of a shipped model."""
    model, made, training = example_clients(name, clients, n)
    params, device = drawn(model), best_device()
    jobs = jobs_of([{column: values.to(device) for column, values in client.items()} for client in made])
    chosen, _ = auto(model, jobs, params, training)
    rounds = {"loop": module_loop(model, training), "sequential": round_by("sequential", model, training)}
    rounds[chosen] = round_by(chosen, model, training)
    for run in rounds.values():  # a warm-up; that executors agree is shown by tests, in float64
        run(jobs, params)
    spent = in_turns({e: lambda turn, run=run: run(jobs, params) for e, run in rounds.items()}, turns)  # type: ignore[misc]
    title = f"{name}, {sum(map(math.prod, (p.shape for p in params.values()))):,} parameters: {chosen}"
    cells = [ratio(title, "over the loop", spent[chosen], spent["loop"])]
    same = Cell(row=title, column="over sequential", value=1.0)
    cells += [same if chosen == "sequential" else ratio(title, "over sequential", spent[chosen], spent["sequential"])]
    say(f"{title}: {cells[0].text()} of the loop's time, {cells[1].text()} of sequential's")
    return cells
