"""The cost of recording every update, and whether memory grows with the number of rounds.

Whole runs with the real float16 store, and with one that writes nothing, take turns. The share is what recording adds
to the run's processor time: a round is written on a thread of its own while the next one trains, so on the clock it
adds less where a core is free. Where the machine is not quiet two runs differ by more than what recording costs: the
processor time of the thread that writes, as a share of the training's, is beside it. Memory is the peak of a fresh
process after few and after many rounds.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring import ROOT, Cell, Section, in_child, median, one_core, peak_mib, say
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

FOLDER = ROOT / "work"
"""On the disk: a folder for temporary files may be in memory."""


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
    """A writer around another, or around none, that times its appends: on the clock, and their thread's processor."""

    initial: Params
    inner: StoreWriter | None
    next_round: int = 0
    appends: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

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
        start, busy = time.perf_counter(), time.thread_time()
        if self.inner is not None:
            self.inner.append(t, seen, truths, after, metrics)
        self.appends.append(time.perf_counter() - start)
        self.busy.append(time.thread_time() - busy)


def train(chosen: Setting, rounds: int, folder: Path | None) -> tuple[float, float, Recording]:
    """Return the processor time of a whole run, its time on the clock, and the writer with that of each append."""
    initial = {name: p.detach().clone() for name, p in chosen.model.named_parameters()}
    plan = FederationPlan(rounds=rounds, cohort=chosen.cohort, training=chosen.training, seed=0)
    start, busy, inner = time.perf_counter(), time.process_time(), None
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
    return time.process_time() - busy, time.perf_counter() - start, writer


def cost(name: str, turns: int, rounds: int) -> list[Cell]:
    """Return the row of a setting."""
    chosen = setting(name)
    d = sum(p.numel() for p in chosen.model.parameters())
    busy: dict[bool, list[float]] = {True: [], False: []}
    clock: dict[bool, list[float]] = {True: [], False: []}
    appends, own = [], []
    train(chosen, 2, None)  # a warm-up
    for turn in range(turns):
        for real in random.Random(turn).sample([True, False], 2):
            with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
                processor, total, writer = train(chosen, rounds, Path(folder) if real else None)
            busy[real].append(processor)
            clock[real].append(total)
            if real:
                appends += writer.appends
                own.append(sum(writer.busy))
    row = f"{name}: {d:,} parameters, cohort {chosen.cohort}"
    cells = [
        median(row, "training, CPU ms a round", [1000 * s / rounds for s in busy[False]]),
        median(row, "share of training", [a / b - 1 for a, b in zip(busy[True], busy[False], strict=True)]),
        median(row, "on the clock", [a / b - 1 for a, b in zip(clock[True], clock[False], strict=True)]),
        median(row, "its own thread's share", [a / b for a, b in zip(own, busy[False], strict=True)]),
        median(row, "append, ms on the clock", [1000 * s for s in appends]),
    ]
    more, clock_more, thread = (cell.text() for cell in cells[1:4])
    say(f"  {row}: {more} more processor time, {clock_more} more on the clock, {thread} in its own thread")
    return cells


def peaks(name: str, few: int, many: int) -> list[Cell]:
    """Return the peak memory of fresh processes."""
    return [
        Cell(
            row=name,
            column=f"peak MiB, {rounds} rounds",
            value=float(in_child("benchmarks.recording", name, str(rounds))),
        )
        for rounds in (few, many)
    ]


def measure(quick: bool) -> Section:
    """Measure the share and the peaks of each setting; wanted: a share of at most .05, and equal peaks."""
    one_core()
    FOLDER.mkdir(exist_ok=True)
    names = ("writers", "albums") if quick else ("writers", "albums", "bloggers", "bloggers-all")
    cells = [cell for name in names for cell in cost(name, *((3, 10) if quick else (5, 20)))]
    for name in names[:1] if quick else names:
        row = next(cell.row for cell in cells if cell.row.startswith(f"{name}:"))
        cells += [replace(cell, row=row) for cell in peaks(name, *((5, 20) if quick else (10, 40)))]
    note = "Executor sequential, one core, float16 store of all layers (bloggers: two layers). Wanted: a share of .05."
    return Section(cells=tuple(cells), notes=(note,))


if __name__ == "__main__":  # the child: a setting and a number of rounds; it prints the peak
    with tempfile.TemporaryDirectory() as scratch:
        train(setting(sys.argv[1]), int(sys.argv[2]), Path(scratch))
    print(peak_mib())
