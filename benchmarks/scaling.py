"""How costs grow: with the cohort, the parameters, the recorded updates, the workers, the users of a study."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.engine import OURS, auto, drawn, jobs_of, round_by
from benchmarks.laboratory import run_all
from benchmarks.measuring import ROOT, Cell, Curve, Section, curve, now, one_core, say, seconds, up_to
from benchmarks.stages import STAGES, Cost, run_stage, store_mib
from benchmarks.store import append_all, forget
from benchmarks.workloads import WORKLOADS
from fedprint.data.formats.locate import data_root
from fedprint.lab.gpus import best_device
from fedprint.lab.machine import cores
from fedprint.models.components import FullyConnected
from fedprint.models.networks import build_network
from fedprint.store.layout import StoreLayout
from fedprint.store.reader import UpdateStore
from fedprint.types import LocalTraining

Sizes = Sequence[int]
ALBUMS = ("data.images=20", "data.background_users=20", "federation.rounds=8", "federation.central_epochs=0",
          "federation.evaluate_every=8", "attacks=[{name: ridge}]", "selection.shadow_rounds=4")  # fmt: skip


def measure(quick: bool) -> Section:
    """Fit an exponent to every curve; a size that would take too long is left out."""
    allowed = by_workers((1, 2) if quick else (1, 2, 4), 0.2 if quick else 2.0)
    users = study("quickstart", (8, 16) if quick else (100, 300, 1000, 3000, 10_000), ALBUMS, 60 if quick else 1500)
    one_core()  # from here on; the curves above use all cores
    curves = [
        by_cohort((10, 30) if quick else (10, 30, 100, 300, 1000), 10 if quick else 200),
        by_parameters((10_000, 100_000) if quick else (10_000, 100_000, 1_000_000, 4_000_000), 10 if quick else 300),
        *by_updates((1000, 2000) if quick else (1000, 10_000, 100_000), 10 if quick else 300),
        allowed,
        *curves_of("albums", users),
    ]
    notes = (
        "Cohort and parameters: rounds of W2's clients by the executor that `auto` chooses, on one core. Updates: "
        f"2,000 parameters each, float16. Workers: 8 jobs of the laboratory on {cores()} core(s). Users: quickstart's "
        f"albums, {', '.join(ALBUMS)}; every stage in a new process.",
    )
    return Section(curves=tuple(curves), notes=notes)


def measure_writers(quick: bool) -> Section:
    """Measure the study of all MNIST writers at several sizes; wanted at 580: ridge 90 s and 3 GB, SVM 180 s."""
    root = data_root(None)
    if root is None or not (root / "mnist_writers").exists():
        return Section(notes=("MNIST's writers are missing: FEDPRINT_DATA does not name a folder that has them.",))
    sizes, words, budget_s = ((20,), QUICKER, 60.0) if quick else ((145, 290, 580), (), 2700.0)
    users = study("writers-scale", sizes, words, budget_s)
    largest = max(users)
    cells = [Cell(row=part, column=f"at {largest} users", value=value) for part, value in users[largest].items()]
    note = "Experiment writers-scale (MNIST's writers), every stage in a new process, without DVC and MLflow."
    return Section(cells=tuple(cells), curves=tuple(curves_of("writers", users)), notes=(note,))


QUICKER = ("federation.rounds=6", "federation.evaluate_every=6", "attacks=[{name: ridge}]", "selection.shadow_rounds=2",
           "data.background_users=16")  # fmt: skip


def round_seconds(hidden: int, cohort: int, repeats: int = 3) -> float:
    """Return the least processor time of a round of W2's clients, with another hidden layer, by auto's executor."""
    work, (_, shape, classes, _) = WORKLOADS["W2"], OURS["W2"]
    model = build_network(FullyConnected(hidden=hidden), shape, classes, False)
    params, training = drawn(model), LocalTraining(epochs=1, batch_size=work.batch, lr=work.lr)
    clients = [{"x": x.to(best_device()), "y": y.to(best_device())} for x, y in map(work.client, range(work.clients))]
    jobs = jobs_of([clients[i % work.clients] for i in range(cohort)])
    run = round_by(auto(model, jobs[:10], params, training)[0], model, training)
    run(jobs, params)
    return min(seconds(lambda: run(jobs, params), now) for _ in range(repeats))


def by_cohort(sizes: Sizes, budget_s: float) -> Curve:
    """Return the cost of a round by its clients."""
    say("  cohort")
    return curve("a round", "clients", "CPU s", up_to(sizes, budget_s, lambda size: round_seconds(64, size)))


def by_parameters(sizes: Sizes, budget_s: float) -> Curve:
    """Return the cost of a round of ten clients by the network's parameters, 795 for each hidden unit."""
    say("  parameters")
    costs = up_to(sizes, budget_s, lambda size: round_seconds(round(size / 795), 10))
    return curve("a round", "parameters", "CPU s", costs)


def by_updates(sizes: Sizes, budget_s: float) -> list[Curve]:
    """Return the costs of writing all updates, opening the store and reading it whole, by their number."""
    say("  updates")
    costs: dict[str, dict[float, float]] = {"write": {}, "open": {}, "read": {}}

    def cost(size: int) -> float:
        update = {"layer": torch.randn(2000)}
        layout = StoreLayout(
            rounds=size // 100, cohort=100, shapes={"layer": (2000,)}, kept=("layer",), fingerprint="x",
            precision="float16",
        )  # fmt: skip
        with tempfile.TemporaryDirectory(dir=ROOT / "work") as folder:
            path, clock = Path(folder), time.perf_counter
            costs["write"][size] = seconds(lambda: append_all(path, layout, update), clock)
            forget(path)
            costs["open"][size] = seconds(lambda: UpdateStore.open(path / "observed", verify=False), clock)
            store = UpdateStore.open(path / "observed", verify=False)
            costs["read"][size] = seconds(store.matrix, clock)
        return costs["write"][size]

    up_to(sizes, budget_s, cost)
    return [curve(name, "updates", "s on the clock", found) for name, found in costs.items()]


def by_workers(sizes: Sizes, each: float) -> Curve:
    """Return the time on the clock of eight jobs that compute for ``each`` seconds."""
    say("  workers")
    return curve("eight jobs", "workers", "s on the clock", up_to(sizes, 600, lambda size: run_all(size, each, 8)))


def study(experiment: str, sizes: Sizes, words: Sequence[str], budget_s: float) -> dict[int, dict[str, float]]:
    """Run all stages of an experiment at several numbers of users, as far as the time allows, and return the costs."""
    say(f"  users of {experiment}")
    found: dict[int, dict[str, float]] = {}

    def cost(users: int) -> float:
        folder = Path(tempfile.mkdtemp(prefix="fedprint-scale-", dir=ROOT / "work"))
        try:
            stages = {stage: run_stage(stage, folder, experiment, (f"data.users={users}", *words)) for stage in STAGES}
            found[users] = costs_of(stages) | {"store MiB": store_mib(folder)}
        finally:
            shutil.rmtree(folder)
        return found[users]["all s"]

    up_to(sizes, budget_s, cost)
    return found


def costs_of(stages: Mapping[str, Cost]) -> dict[str, float]:
    """Return the seconds on the clock and the peak MiB of all stages, and the seconds of the attack's parts."""
    costs = {f"{stage} s": cost.wall for stage, cost in stages.items()}
    costs |= {f"{stage} MiB": cost.peak for stage, cost in stages.items()}
    costs |= {f"{attack} s": spent for cost in stages.values() for attack, spent in cost.parts.items()}
    return costs | {"all s": sum(cost.wall for cost in stages.values())}


def curves_of(title: str, users: Mapping[int, Mapping[str, float]]) -> list[Curve]:
    """Return a curve for each cost that occurs, and is above 0, at every size."""
    common = set.intersection(*(set(costs) for costs in users.values()))
    parts = [part for part in next(iter(users.values())) if part in common]

    def of(part: str) -> Curve:
        name, _, unit = part.rpartition(" ")
        return curve(f"{title}: {name}", "users", unit, {float(u): costs[part] for u, costs in users.items()})

    return [of(part) for part in parts if all(costs[part] > 0 for costs in users.values())]
