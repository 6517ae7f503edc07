"""Rounds per second of the backends beside a plain PyTorch loop over clients.

Run: ``OMP_NUM_THREADS=1 python benchmarks/federation.py [repeats]``. The engines take turns, a round each, in one
process with one thread. The time of an engine is the median processor time of its rounds, which on an idle machine is
the time on the clock, and which a busy machine disturbs least. About 2 minutes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedprint.federation.backends import make_backend
from fedprint.federation.client import batch_schedule
from fedprint.models.base import FedModule, initialise
from fedprint.models.components import NextWordLstm, SmallCnn
from fedprint.params import weighted_mean
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, Examples, LocalTraining, Params

ENGINES = ("loop", "sequential", "vectorised:1", "vectorised:2", "vectorised:5", "vectorised:10")
Round = Callable[[Params], Params]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One model and one round's cohort."""

    title: str
    model: FedModule
    cohort: tuple[Examples, ...]
    training: LocalTraining


def writers() -> Workload:
    """W1: 10 clients of 60 digits (28 x 28), batch 10, the CNN with a hidden layer of 64."""
    rng = torch_rng(0, "W1")
    cohort = tuple(
        {"x": torch.rand(60, 1, 28, 28, generator=rng), "y": torch.randint(10, (60,), generator=rng)} for _ in range(10)
    )
    model = SmallCnn(channels=(16, 32), hidden=64).build((1, 28, 28), 10, False)
    return Workload(title="W1 CNN", model=model, cohort=cohort, training=LocalTraining(epochs=1, batch_size=10, lr=0.1))


def bloggers() -> Workload:
    """W3: 5 clients of 64 sentences of 16 tokens, batch 16, the LM with a vocabulary of 5000."""
    rng = torch_rng(0, "W3")
    cohort = tuple({c: torch.randint(5000, (64, 16), generator=rng) for c in ("x", "y")} for _ in range(5))
    model = NextWordLstm().build((16,), 5000, False)
    return Workload(title="W3 LM", model=model, cohort=cohort, training=LocalTraining(epochs=1, batch_size=16, lr=1.0))


def plain_round(work: Workload) -> Round:
    """Return a round as anyone writes it: load the weights, torch.optim.SGD, subtract, average."""

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


def measure(work: Workload, repeats: int) -> dict[str, float]:
    """Return each engine's rounds per second; every engine must give the loop's mean update."""
    initialise(work.model, torch_rng(0, "model"), work.model.initial_gain)
    params = {name: p.detach().clone() for name, p in work.model.named_parameters()}
    engines = {name: engine_round(work, name) for name in ENGINES}
    reference = engines["loop"](params)
    for name, run in engines.items():  # also the warm-up
        gap = max(float((mean - reference[key]).abs().max()) for key, mean in run(params).items())
        assert gap < 1e-5, f"{name} differs from the loop by {gap}"
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(repeats):
        for name, run in engines.items():
            start = time.process_time()
            run(params)
            seconds[name].append(time.process_time() - start)
    return {name: 1 / statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Print rounds per second and the ratio to the loop."""
    torch.set_num_threads(1)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    print(f"one thread, median of {repeats} rounds; rounds per second of processor time (ratio to the loop)")
    print(f"{'':14}", *(f"{name:>15}" for name in ENGINES))
    for work in (writers(), bloggers()):
        rates = measure(work, repeats)
        print(f"{work.title:14}", *(f"{rate:7.2f} ({rate / rates['loop']:4.2f}x)" for rate in rates.values()))


if __name__ == "__main__":
    main()
