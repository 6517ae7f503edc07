"""Synthetic updates in memory: several people, two devices each, with or without a personal signal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.mlp_tuned import MlpTuned
from fedprint.attacks.reidentification.presets import Chance, Knn, Mlp, Svm, SvmHard
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Attack
from fedprint.attacks.updates import MemoryUpdates

SIZES = {"body.weight": 30, "body.bias": 6, "head.weight": 24}
USERS, PER_DEVICE = 12, 8
LEARNED: tuple[Attack, ...] = (
    Knn(k=5),
    Knn(name="knn-std", k=5),
    Svm(),
    SvmHard(),
    Svm(name="svm-std"),
    Mlp(),
    Mlp(name="mlp-std"),
    MlpTuned(hidden=64),
    Ridge(),
)
ALL: tuple[Attack, ...] = (Chance(), *LEARNED)


def names(attacks: Sequence[Attack]) -> list[str]:
    return [attack.name for attack in attacks]


def planted(signal: float, seed: int = 0, users: int = USERS, per_device: int = PER_DEVICE) -> MemoryUpdates:
    """Return updates (2 * users * per_device, d): user u's fit rows, then in the second half u's ask rows.

    All share one direction (training); each person has one of their own, ``signal`` strong.
    """
    rng = np.random.default_rng(seed)
    d = sum(SIZES.values())
    person = np.tile(np.repeat(rng.normal(size=(users, d)), per_device, axis=0), (2, 1))
    values = 2 * rng.normal(size=d) + signal * person + rng.normal(size=(len(person), d))
    return MemoryUpdates(sizes=SIZES, values=(1e-3 * values).astype(np.float32))


def problem(updates: MemoryUpdates, users: int = USERS, labels: np.ndarray | None = None) -> Problem:
    """Ask for the second half of the rows; ``labels`` (p,) default to the truth."""
    half = len(updates.values) // 2
    known = truth(half, users) if labels is None else labels
    return Problem(updates=updates, fit=np.arange(half), labels=known, ask=np.arange(half, 2 * half), options=users)


def truth(rows: int, users: int = USERS) -> np.ndarray:
    return np.repeat(np.arange(users), rows // users)


def validation(signal: float, seed: int = 100) -> tuple[Validation, ...]:
    """Return two validation problems on other updates of other people."""
    made = problem(planted(signal, seed))
    back = Problem(updates=made.updates, fit=made.ask, labels=made.labels, ask=made.fit, options=made.options)
    return tuple(Validation(problem=p, answers=made.labels) for p in (made, back))
