"""The cost of recording every update, and whether memory grows with the number of rounds.

Run: ``OMP_NUM_THREADS=1 python benchmarks/recording.py [SETTING ...]``. Cost: the median time on the clock of a round's
append to the real float16 store, syncs included, as a share of the median processor time of the round's training, which
a busy machine does not lengthen. Then whole runs with the real store and with one that writes nothing, in turns, on
the clock. Memory: peak resident memory of a fresh process after 20 and after 80 rounds. About 5 minutes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fedprint.federation.backends import make_backend
from fedprint.federation.rounds import FederationPlan, federate
from fedprint.models.base import FedModule, initialise
from fedprint.models.components import NextWordLstm, SmallCnn
from fedprint.models.networks import build_network
from fedprint.params import select
from fedprint.rng import torch_rng
from fedprint.store.layout import StoreLayout
from fedprint.store.writer import StoreWriter
from fedprint.types import Device, Examples, LocalTraining, Observation, Params, Truth

ROUNDS, TURNS = 20, 3


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A federation as an experiment that ships has it, on made-up data of the same size."""

    model: FedModule
    devices: tuple[Device, ...]
    cohort: int
    training: LocalTraining
    layers: tuple[str, ...] | None = None


def setting(name: str) -> Setting:
    """Return ``writers`` (mnist-writers), ``bloggers`` (blog: two layers kept; ``-all``: all) or ``albums``."""
    if name == "writers":
        model = build_network(SmallCnn(channels=(16, 32), hidden=64), (1, 28, 28), 10, False)
        data = [pictures((60, 1, 28, 28), 10, i) for i in range(200)]
        return make(model, data, 20, LocalTraining(epochs=1, batch_size=10, lr=0.1))
    if name.startswith("bloggers"):
        data = [sentences(160, i) for i in range(120)]
        training = LocalTraining(epochs=1, batch_size=32, lr=1.0)
        made = make(build_network(NextWordLstm(), (16,), 5000, False), data, 18, training)
        return replace(made, layers=None if name == "bloggers-all" else ("lstm", "head.bias"))
    model = build_network(SmallCnn(channels=(16, 32), hidden=64, centred=True), (3, 32, 32), 10, False)
    data = [pictures((48, 3, 32, 32), 10, i) for i in range(80)]
    return make(model, data, 16, LocalTraining(epochs=1, batch_size=8, lr=0.1))


def make(model: FedModule, data: Sequence[Examples], cohort: int, training: LocalTraining) -> Setting:
    """Give every device its examples and draw the model."""
    initialise(model, torch_rng(0, "model"), model.initial_gain)
    devices = tuple(
        Device(device_id=f"{i:03}", user_id=i // 2, role="anonymous" if i % 2 else "prior", examples=examples)
        for i, examples in enumerate(data)
    )
    return Setting(model=model, devices=devices, cohort=cohort, training=training)


def pictures(shape: tuple[int, ...], classes: int, seed: int) -> Examples:
    """Return n random pictures with labels."""
    rng = torch_rng(0, "pictures", seed)
    return {"x": torch.rand(shape, generator=rng), "y": torch.randint(classes, shape[:1], generator=rng)}


def sentences(n: int, seed: int) -> Examples:
    """Return n random sentences of 16 tokens."""
    rng = torch_rng(0, "sentences", seed)
    return {c: torch.randint(5000, (n, 16), generator=rng) for c in ("x", "y")}


@dataclass
class Recording:
    """A writer around another, or around none, that times its appends."""

    initial: Params
    inner: StoreWriter | None
    next_round: int = 0
    appends: list[float] = field(default_factory=list)
    trainings: list[float] = field(default_factory=list)
    _last: float = field(default_factory=time.process_time)

    def latest_params(self) -> Params:
        """Return the parameters to start from."""
        return self.initial

    def metrics(self) -> list[dict[str, Any]]:
        """Return nothing: the run is always new."""
        return []

    def append(
        self, t: int, seen: Sequence[Observation], truths: Sequence[Truth], after: Params, metrics: Mapping[str, float]
    ) -> None:
        """Store the round where there is a store."""
        self.trainings.append(time.process_time() - self._last)
        start = time.perf_counter()
        if self.inner is not None:
            self.inner.append(t, seen, truths, after, metrics)
        self.appends.append(time.perf_counter() - start)
        self._last = time.process_time()


def train(chosen: Setting, rounds: int, folder: Path | None) -> tuple[float, Recording]:
    """Return the seconds of the whole run and the times that the writer recorded."""
    initial = {name: p.detach().clone() for name, p in chosen.model.named_parameters()}
    plan = FederationPlan(rounds=rounds, cohort=chosen.cohort, training=chosen.training, seed=0)
    start, inner = time.perf_counter(), None
    if folder is not None:
        shapes = {name: tuple(p.shape) for name, p in initial.items()}
        layout = StoreLayout(
            rounds=rounds,
            cohort=plan.cohort,
            shapes=shapes,
            kept=select(list(shapes), chosen.layers),
            fingerprint="x",
            precision="float16",
        )
        inner = StoreWriter.open(folder, layout)
        inner.set_initial(initial)
    writer = Recording(initial, inner)
    federate(
        devices=chosen.devices,
        plan=plan,
        backend=make_backend("sequential", chosen.model),
        defences=(),
        writer=writer,  # type: ignore[arg-type]
        utility=lambda t, params: {},
        report=lambda report: None,
    )
    if inner is not None:
        inner.finalise()
        inner.close()
    chosen.model.load_state_dict(initial)
    return time.perf_counter() - start, writer


def cost(name: str) -> str:
    """Return one line: append per round, its share of the training, and whole runs with and without the store."""
    chosen = setting(name)
    d = sum(p.numel() for p in chosen.model.parameters())
    whole: dict[bool, list[float]] = {True: [], False: []}
    trainings, appends = [], []
    for _ in range(TURNS):
        for real in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                total, writer = train(chosen, ROUNDS, Path(folder) if real else None)
            whole[real].append(total)
            trainings += writer.trainings
            appends += writer.appends if real else []
    training, append = statistics.median(trainings), statistics.median(appends)
    without, recorded = min(whole[False]), min(whole[True])
    return (
        f"{name:12} {d:9} {chosen.cohort:7} {1000 * training:12.0f} {1000 * append:10.1f} {append / training:8.1%} "
        f"{without:12.2f} {recorded:12.2f} {recorded / without - 1:8.1%}"
    )


def peak_mib(name: str, rounds: int) -> float:
    """Return the peak resident memory of a new process."""
    command = [sys.executable, __file__, "--peak", name, str(rounds)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_peak(name: str, rounds: int) -> None:
    """Run in the child: train with the real store and print the peak in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        train(setting(name), rounds, Path(folder))
    # not ru_maxrss, which in a child starts at the value of its parent
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024)


def main(words: Sequence[str]) -> None:
    """Print both tables."""
    if words[:1] == ["--peak"]:
        print_peak(words[1], int(words[2]))
        return
    names = list(words) or ["writers", "bloggers", "bloggers-all", "albums"]
    torch.set_num_threads(1)
    print(f"backend sequential, one thread, float16 store, {TURNS} x {ROUNDS} rounds")
    print("setting              d  cohort  train ms/rd  append ms    share   run, null s  run, store s   more")
    for name in names:
        print(cost(name), flush=True)
    print("peak resident memory, MiB: 20 rounds, 80 rounds")
    for name in names:
        print(f"{name:12} {peak_mib(name, 20):8.0f} {peak_mib(name, 80):8.0f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
