"""How fast client-dp's largest experiment trains: updates per second, memory, and a projection for all its rounds.

Run: ``FEDPRINT_DATA=... OMP_NUM_THREADS=1 python -m benchmarks.client_dp [EXPERIMENT] [ROUNDS]``, by default
client-dp-10000 and 12. The stages prepare and federate run in separate processes, without DVC and MLflow. federate runs
twice, for a third of the rounds and for all, so that the difference is training alone, with the writing of updates.
With ``all`` for ROUNDS it runs one seed to the end of its budget and evaluates it; repeat the command to continue a
killed run.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import ROOT
from benchmarks.stages import STAGES, Cost, run_stage, task_of
from fedprint.data.prepared import load_users
from fedprint.kinds.federation.building.federation import make_plan
from fedprint.lab.gpus import best_device
from fedprint.store.reader import UpdateStore


def settings(rounds: int | None) -> list[str]:
    """Return the settings for some of an experiment's rounds, or for all of them."""
    return [] if rounds is None else [f"federation.rounds={rounds}", f"federation.evaluate_every={rounds}"]


def measured(stage: str, base: Path, experiment: str, rounds: int | None) -> Cost:
    """Run a stage in a new process, print its cost and return it."""
    cost = run_stage(stage, base, experiment, settings(rounds))
    spent = f"{cost.wall:.0f} s, {cost.cpu:.0f} s of cpu, {cost.peak:.0f} MiB"
    print(f"{stage}, {rounds or 'all'} rounds: {spent}", flush=True)
    return cost


def measure(experiment: str, rounds: int, base: Path) -> None:
    """Print the costs and the projection."""
    prepared = measured("prepare", base, experiment, rounds)
    measured("choose", base, experiment, rounds)
    few = max(1, rounds // 3)
    costs, updates = {}, {}
    for count in (few, rounds):
        costs[count] = measured("federate", base, experiment, count)
        updates[count] = len(UpdateStore.open(base / "observed", verify=False).index)
    more = updates[rounds] - updates[few]
    rates = [more / (getattr(costs[rounds], kind) - getattr(costs[few], kind)) for kind in ("wall", "cpu")]
    whole = task_of(base, experiment, ()).config
    clients = 2 * len(load_users(base / "private"))
    plan = make_plan(whole, clients, 0)
    total = sum(plan.expected(t) for t in range(plan.rounds))
    disk = (
        sum(path.stat().st_size for path in (base / "observed").rglob("*") if path.is_file()) / updates[rounds] * total
    )
    peak = max(cost.peak for cost in (prepared, *costs.values()))
    print(f"{clients:,} clients: {rates[0]:.0f} updates/s on the clock, {rates[1]:.0f} per second of cpu")
    print(f"peak memory {peak:.0f} MiB")
    minutes = (total / rates[0] + costs[few].wall) / 60, (total / rates[1] + costs[few].cpu) / 60
    print(f"projection: {plan.rounds} rounds, {total:,} updates, {minutes[0]:.0f} min on the clock as loaded as now, "
          f"{minutes[1]:.0f} min of cpu, {disk / 2**30:.1f} GiB of store")  # fmt: skip


def run_whole(experiment: str, base: Path) -> None:
    """Run every stage of one seed and print what each took, then accuracy and epsilon."""
    began = time.perf_counter()
    costs = [measured(stage, base, experiment, None) for stage in STAGES]
    updates = len(UpdateStore.open(base / "observed", verify=False).index)
    rows = map(json.loads, (base / "evaluation" / "rows.jsonl").read_text().splitlines())
    said = ("value", "lo", "hi", "n_questions", "epsilon", "delta", "rounds", "accountant", "sampling", "adjacency")
    for row in (one for one in rows if one["metric"] == "accuracy" and one["training"] == "federated"):
        print("accuracy", {key: row[key] for key in said})
    print(f"{updates:,} updates in {costs[1].wall:.0f} s of federate, {updates / costs[1].wall:.0f} updates/s; "
          f"{(time.perf_counter() - began) / 60:.1f} min in all, on {best_device()}")  # fmt: skip


def main(words: Sequence[str]) -> None:
    """Measure in a temporary folder."""
    experiment, rounds = (*words, *("client-dp-10000", "12")[len(words) :])
    if rounds == "all":
        run_whole(experiment, ROOT / "work" / "benchmarks" / experiment)
        return
    folder = Path(tempfile.mkdtemp(prefix="fedprint-client-dp-"))
    try:
        measure(experiment, int(rounds), folder / "artifacts")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
