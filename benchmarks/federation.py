"""Rounds per second of the backends beside a plain PyTorch loop over clients.

Run: ``OMP_NUM_THREADS=1 python benchmarks/federation.py [repeats [clients]]``. The engines take turns, a round each, in
one process with one thread. The time of an engine is the median processor time of its rounds. On an idle machine that
is the wall-clock time, and a busy machine changes it least. About 2 minutes. With a GPU all work runs on it and time is
wall-clock time; ``clients`` is the size of a round (default: that of W1 and of W3).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedprint.federation.backends import best_device, make_backend
from fedprint.federation.client import batch_schedule
from fedprint.models.base import FedModule, initialise
from fedprint.models.components import NextWordLstm, SmallCnn
from fedprint.models.networks import build_network
from fedprint.params import weighted_mean
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, Examples, LocalTraining, Params

BLOCKS = (1, 2, 5, 10, 32, 100)
DEVICE = best_device()
Round = Callable[[Params], Params]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One model and one round's cohort."""

    title: str
    model: FedModule
    cohort: tuple[Examples, ...]
    training: LocalTraining


def on_device(examples: Examples) -> Examples:
    return {column: values.to(DEVICE) for column, values in examples.items()}


def writers(clients: int = 10) -> Workload:
    """W1: clients of 60 digits (28 x 28), batch 10, the CNN with a hidden layer of 64."""
    rng = torch_rng(0, "W1")
    cohort = tuple(
        on_device({"x": torch.rand(60, 1, 28, 28, generator=rng), "y": torch.randint(10, (60,), generator=rng)})
        for _ in range(clients)
    )
    model = build_network(SmallCnn(channels=(16, 32), hidden=64), (1, 28, 28), 10, False)
    return Workload(title="W1 CNN", model=model, cohort=cohort, training=LocalTraining(epochs=1, batch_size=10, lr=0.1))


def bloggers(clients: int = 5) -> Workload:
    """W3: clients of 64 sentences of 16 tokens, batch 16, the LM with a vocabulary of 5000."""
    rng = torch_rng(0, "W3")
    cohort = tuple(
        on_device({c: torch.randint(5000, (64, 16), generator=rng) for c in ("x", "y")}) for _ in range(clients)
    )
    model = build_network(NextWordLstm(), (16,), 5000, False)
    return Workload(title="W3 LM", model=model, cohort=cohort, training=LocalTraining(epochs=1, batch_size=16, lr=1.0))


def plain_round(work: Workload) -> Round:
    """Return a round in plain PyTorch: load the weights, torch.optim.SGD, subtract, average."""

    def train(received: Params, data: Examples, seed: int) -> dict[str, Tensor]:
        work.model.load_state_dict(dict(received))
        sgd = torch.optim.SGD(work.model.parameters(), lr=work.training.lr)
        for batch in batch_schedule(len(data["y"]), work.training, seed):
            sgd.zero_grad()
            work.model({"x": data["x"][batch], "y": data["y"][batch]}).mean().backward()
            sgd.step()
        return {name: w - received[name] for name, w in work.model.state_dict().items()}

    def run(params: Params) -> Params:
        updates = [train(params, data, seed) for seed, data in enumerate(work.cohort)]
        return weighted_mean(updates, [len(data["y"]) for data in work.cohort])

    return run


def engine_round(work: Workload, name: str) -> Round:
    """Return a round by the plain loop or by a backend."""
    if name == "loop":
        return plain_round(work)
    backend = make_backend(name, work.model)
    jobs = [ClientJob(device_id=str(i), examples=data, seed=i) for i, data in enumerate(work.cohort)]

    def run(params: Params) -> Params:
        results = list(backend.run(jobs, params, work.training))
        return weighted_mean([r.update for r in results], [r.num_examples for r in results])

    return run


def engines_for(clients: int) -> tuple[str, ...]:
    """Return the loop, sequential, and vectorised with every block that a round of ``clients`` can fill."""
    return ("loop", "sequential", *(f"vectorised:{block}" for block in BLOCKS if block <= clients))


def now() -> float:
    """Return seconds of processor time; with a GPU wall-clock seconds, after it has finished its work."""
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def measure(work: Workload, repeats: int) -> dict[str, float]:
    """Return each engine's rounds per second; every engine must give the loop's mean update."""
    initialise(work.model, torch_rng(0, "model"), work.model.initial_gain)
    work.model.to(DEVICE)
    params = {name: p.detach().clone() for name, p in work.model.named_parameters()}
    engines = {name: engine_round(work, name) for name in engines_for(len(work.cohort))}
    reference = engines["loop"](params)
    for name, run in engines.items():  # also the warm-up
        gap = max(float((mean - reference[key]).abs().max()) for key, mean in run(params).items())
        assert gap < (1e-5 if DEVICE == "cpu" else 1e-3), f"{name} differs from the loop by {gap}"
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(repeats):
        for name, run in engines.items():
            start = now()
            run(params)
            seconds[name].append(now() - start)
    return {name: 1 / statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Print rounds per second and the ratio to the loop."""
    torch.set_num_threads(1)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    works = [make(*map(int, sys.argv[2:3])) for make in (writers, bloggers)]
    where = "of processor time" if DEVICE == "cpu" else f"on the clock, {torch.cuda.get_device_name()}"
    print(f"one thread, median of {repeats} rounds; rounds per second {where} (ratio to the loop)")
    for work in works:
        rates = measure(work, repeats)
        print(f"{work.title}, {len(work.cohort)} clients", flush=True)
        for name, rate in rates.items():
            print(f"  {name:15} {rate:8.2f} ({rate / rates['loop']:5.2f}x)", flush=True)


if __name__ == "__main__":
    main()
