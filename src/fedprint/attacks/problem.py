"""What an attack is asked: whose updates these are, given others whose senders the adversary knows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedprint.attacks.denoise import Denoise
from fedprint.attacks.features import Updates
from fedprint.attacks.view import AttackerView
from fedprint.types import FedprintError, Questions

MORE_ROUNDS = "train more rounds (federation.rounds) or raise federation.fraction"
"""What helps where too little was recorded."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Name the sender of the ``ask`` rows, given ``fit`` rows with ``labels`` (p,) in [0, m).

    ``nuisance`` are rows of devices without any user's data, which kernel attacks take out of the others as ``denoise``
    says (attacks/denoise.py); None takes nothing out.
    """

    updates: Updates
    fit: NDArray[np.int64]
    labels: NDArray[np.int64]
    ask: NDArray[np.int64]
    options: int
    nuisance: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    denoise: Denoise | None = None


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A problem whose answers (q,) the adversary knows, because it made the updates."""

    problem: Problem
    answers: NDArray[np.int64]


def attack_problem(view: AttackerView, questions: Questions) -> Problem:
    """Return the real problem: fit on the recorded prior updates, ask for every anonymous one."""
    labels = view.prior_labels(questions)
    if len(np.unique(labels)) < 2:
        raise FedprintError(f"updates of fewer than two prior devices were recorded; {MORE_ROUNDS}")
    return Problem(
        updates=view.store,
        fit=view.prior_rows,
        labels=labels,
        ask=view.anonymous_rows,
        options=len(questions.options),
    )
