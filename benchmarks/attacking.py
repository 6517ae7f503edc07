"""The time of attacks by users: ridge, SVM and kNN on made-up updates with a planted signal."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.measuring import Cell, Section, curve, peak_mib, say, seconds, up_to
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.presets import Knn, Svm
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.ranking import average_precision
from fedprint.rng import torch_rng

SIZES = {"fc1.weight": 4096, "head.weight": 640, "head.bias": 10}
EACH = 4
"""Known updates of each user, and asked ones."""
ATTACKS: dict[str, Attack] = {"ridge": Ridge(), "svm": Svm(name="svm", layers=("head",)), "knn": Knn(layers=("head",))}


def problem(users: int, each: int, sizes: dict[str, int]) -> Problem:
    """Return ``each`` known and as many asked updates per user: a common direction, one per user, and noise."""
    rng, d = np.random.default_rng(0), sum(sizes.values())
    values = rng.standard_normal((2 * users * each, d), dtype=np.float32)
    for first in range(0, len(values), each):
        user = np.random.default_rng(1 + first // each % users)
        values[first : first + each] += 0.5 * user.standard_normal(d, dtype=np.float32)
    values += 2 * rng.standard_normal(d, dtype=np.float32)
    half = users * each
    known = np.repeat(np.arange(users), each)
    updates = MemoryUpdates(sizes=sizes, values=values)
    return Problem(updates=updates, fit=np.arange(half), labels=known, ask=np.arange(half, 2 * half), options=users)


def run(attack: Attack, asked: Problem) -> tuple[float, float]:
    """Return the processor time of an attack with fixed settings, and its AP (a wrong answer is fast too)."""
    layers = tuple((layer,) for layer in asked.updates.layers)
    settings = {"blocks": ((layers, "l2"),), "penalty": 0.1} if attack.name == "ridge" else {}
    answers: list[np.ndarray] = []

    def answer() -> None:
        answers.append(attack.scores(asked, settings, Workspace(), torch_rng(0, attack.name)))

    spent = seconds(answer, time.process_time)
    return spent, float(average_precision(answers[0], asked.labels).mean())


def measure(quick: bool) -> Section:
    """Measure each attack by users, as far as the time allows, and in a full run ridge and kNN on 20,000 updates."""
    users = (25, 50, 100) if quick else (100, 200, 400, 800, 1600, 3200)
    curves, cells = [], []
    for name in ATTACKS:
        say(f"  {name}")
        aps: dict[int, float] = {}
        run(ATTACKS[name], problem(5, EACH, SIZES))  # a warm-up

        def cost(number: int, name: str = name, aps: dict[int, float] = aps) -> float:
            spent, aps[number] = run(ATTACKS[name], problem(number, EACH, SIZES))
            return spent

        curves.append(curve(name, "users", "CPU s", up_to(users, 20 if quick else 300, cost)))
        cells.append(Cell(row=name, column=f"AP at {users[0]} users", value=aps[users[0]]))
    if not quick:
        cells += large()
    note = (
        f"{EACH} known and {EACH} asked updates of {sum(SIZES.values()):,} parameters each per user; ridge on all, SVM "
        "and kNN on the last layer; settings fixed, no shadow devices, no validation (`writers` has both)."
    )
    return Section(cells=tuple(cells), curves=tuple(curves), notes=(note,))


def large() -> list[Cell]:
    """Return the costs on 20,000 updates of 20,000 parameters of 500 users; wanted: 120 s and 6 GB together."""
    asked, cells = problem(500, 20, {"layer.weight": 20_000}), []
    for attack in (Ridge(), Knn()):
        spent, ap = run(attack, asked)
        cells += [Cell(row=attack.name, column="CPU s, 20,000 x 20,000", value=spent)]
        cells += [Cell(row=attack.name, column="AP there", value=ap)]
    return [*cells, Cell(row="ridge", column="peak MiB there", value=peak_mib())]
