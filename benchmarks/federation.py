"""How fast the backends train clients, beside a plain PyTorch loop over them: workloads W1, W2 and W3.

Run: ``OMP_NUM_THREADS=1 python benchmarks/federation.py [--rounds 30] [--clients N] [--json FILE]``. The loop knows
nothing of this project: layers of ``torch.nn``, ``torch.optim.SGD``, one client after another. The engines take turns,
a round each, in one process with one thread, in the order of a fresh shuffle. A ratio is the median over rounds of the
loop's processor time divided by the engine's in the same turn, with a bootstrap interval: a busy machine changes it
least. Every engine must give the loop's mean update. About 5 minutes. With a GPU all work runs on it, and time is
wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedprint.federation.backends import make_backend
from fedprint.federation.client import batch_schedule
from fedprint.lab.gpus import best_device
from fedprint.lab.workers.allocator import keep_freed_memory
from fedprint.models.base import FedModule, initialise
from fedprint.models.components import FullyConnected, Model, NextWordLstm, SmallCnn
from fedprint.models.networks import build_network
from fedprint.params import weighted_mean
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, Examples, LocalTraining, Params

BLOCKS = (1, 4, 10, 32, 100)
DEVICE = best_device()
Round = Callable[[Params], Params]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One model, as the project has it and in plain PyTorch, and one round's cohort.

    ``names`` are the project's names of the plain model's parameters, in its order; an unnamed one stays zero.
    """

    title: str
    model: FedModule
    plain: nn.Module
    names: tuple[str, ...]
    cohort: tuple[Examples, ...]
    training: LocalTraining


class PlainLanguageModel(nn.Module):
    """W3 in layers of torch: embedding of 100, LSTM of 64, scores over 5000 words, (b, words, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5000, 100)
        self.lstm = nn.LSTM(100, 64, batch_first=True)
        self.head = nn.Linear(64, 5000)
        self.lstm.bias_hh_l0.requires_grad_(False)  # the project's LSTM has one bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of sentences (b, length)."""
        scores: Tensor = self.head(self.lstm(self.embedding(x))[0])
        return scores.transpose(1, 2)


def on_device(examples: Examples) -> Examples:
    return {column: values.to(DEVICE) for column, values in examples.items()}


def images(title: str, config: Model, plain: nn.Module, names: tuple[str, ...], clients: int) -> Workload:
    """Return a workload of clients with 60 images of 28 x 28 pixels, batch 10, one epoch."""
    rng = torch_rng(0, title)
    cohort = tuple(
        on_device({"x": torch.rand(60, 1, 28, 28, generator=rng), "y": torch.randint(10, (60,), generator=rng)})
        for _ in range(clients)
    )
    model = build_network(config, (1, 28, 28), 10, False)
    training = LocalTraining(epochs=1, batch_size=10, lr=0.1)
    return Workload(title=title, model=model, plain=plain, names=names, cohort=cohort, training=training)


def convolutional(clients: int = 10) -> Workload:
    """W1: convolutions 5x5x16 and 5x5x32, each with a max-pool, and a fully connected layer of 10."""
    plain = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    names = tuple(f"{layer}.{kind}" for layer in ("conv1", "conv2", "head") for kind in ("weight", "bias"))
    return images("W1", SmallCnn(channels=(16, 32), hidden=0), plain, names, clients)


def fully_connected(clients: int = 10) -> Workload:
    """W2: 784-64-10."""
    plain = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    return images(
        "W2", FullyConnected(hidden=64), plain, ("fc1.weight", "fc1.bias", "head.weight", "head.bias"), clients
    )


def next_word(clients: int = 5) -> Workload:
    """W3: clients of 64 sentences of 16 tokens, batch 16, the LM with a vocabulary of 5000."""
    rng = torch_rng(0, "W3")
    cohort = tuple(
        on_device({c: torch.randint(5000, (64, 16), generator=rng) for c in ("x", "y")}) for _ in range(clients)
    )
    names = ("embedding.weight", "lstm.weight_ih", "lstm.weight_hh", "lstm.bias", "", "head.weight", "head.bias")
    training = LocalTraining(epochs=1, batch_size=16, lr=1.0)
    model = build_network(NextWordLstm(), (16,), 5000, False)
    return Workload(title="W3", model=model, plain=PlainLanguageModel(), names=names, cohort=cohort, training=training)


def plain_round(work: Workload) -> Round:
    """Return a round in plain PyTorch: load the weights, torch.optim.SGD, subtract, average."""
    trained = [name for name in work.names if name]

    def train(received: Params, data: Examples, seed: int) -> dict[str, Tensor]:
        parameters = dict(zip(work.names, work.plain.parameters(), strict=True))
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(received[name]) if name else parameter.zero_()
        sgd = torch.optim.SGD([parameters[name] for name in trained], lr=work.training.lr)
        for batch in batch_schedule(len(data["y"]), work.training, seed):
            sgd.zero_grad()
            loss: Tensor = functional.cross_entropy(work.plain(data["x"][batch]), data["y"][batch])
            loss.backward()  # type: ignore[no-untyped-call]
            sgd.step()
        return {name: parameters[name].detach() - received[name] for name in trained}

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


def now() -> float:
    """Return seconds of processor time; with a GPU wall-clock seconds, after it has finished its work."""
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def measure(work: Workload, rounds: int) -> dict[str, list[float]]:
    """Return each engine's seconds per round; every engine must give the loop's mean update."""
    initialise(work.model, torch_rng(0, "model"), work.model.initial_gain)
    work.model.to(DEVICE)
    work.plain.to(DEVICE)
    params = {name: p.detach().clone() for name, p in work.model.named_parameters()}
    names = ["loop", "sequential", *(f"vectorised:{block}" for block in BLOCKS if block <= len(work.cohort))]
    engines = {name: engine_round(work, name) for name in names}
    reference = engines["loop"](params)
    for name, run in engines.items():  # also the warm-up
        gap = max(float((mean - reference[key]).abs().max()) for key, mean in run(params).items())
        assert gap < (1e-4 if DEVICE == "cpu" else 1e-3), f"{work.title}: {name} differs from the loop by {gap}"
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in random.Random(turn).sample(names, len(names)):
            start = now()
            engines[name](params)
            seconds[name].append(now() - start)
    return seconds


def ratio(loop: list[float], engine: list[float]) -> tuple[float, float, float]:
    """Return the median over turns of loop time / engine time, and its 95 % bootstrap interval."""
    ratios = np.array(loop) / np.array(engine)
    draws = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def main() -> None:
    """Print rounds per second and the ratio to the loop; write them as JSON where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--clients", type=int, help="size of a round (default: 10 in W1 and W2, 5 in W3)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    where = "of processor time" if DEVICE == "cpu" else f"on the clock, {torch.cuda.get_device_name()}"
    print(f"one thread, {options.rounds} rounds; rounds per second {where} (ratio to the loop, 95 % interval)")
    ratios = {}
    for make in (convolutional, fully_connected, next_word):
        work = make(options.clients) if options.clients else make()
        seconds = measure(work, options.rounds)
        print(f"{work.title}, {len(work.cohort)} clients", flush=True)
        ratios[work.title] = {name: ratio(seconds["loop"], times) for name, times in seconds.items()}
        for name, (middle, low, high) in ratios[work.title].items():
            rate = 1 / statistics.median(seconds[name])
            print(f"  {name:15} {rate:8.2f} ({middle:5.2f}x [{low:.2f}, {high:.2f}])", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"ratio_to_plain_loop": ratios}, indent=1))


if __name__ == "__main__":
    main()
