"""What an attack is asked: whose updates these are, given others whose senders the adversary knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedprint.attacks.denoise import Denoise
from fedprint.attacks.features import Updates
from fedprint.attacks.view import AttackerView
from fedprint.types import FedprintError, Ints, Questions

MORE_ROUNDS = "train more rounds (federation.rounds) or raise federation.fraction"
"""What helps where too little was recorded."""

NO_MODE = -1
"""Mode of a device that belongs to none, or to one that nobody knows."""


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Modes of the ``fit`` rows (p,), :data:`NO_MODE` for those that serve all, and of the ``ask`` rows (q,)."""

    fit: Ints
    ask: Ints


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Name the sender of the ``ask`` rows, given ``fit`` rows with ``labels`` (p,) in [0, m).

    ``nuisance`` are rows of devices without any user's data, which kernel attacks take out of the others as ``denoise``
    says (attacks/denoise.py); None takes nothing out. With ``modes`` a row is answered from those of its own mode and
    of none, in one of :meth:`parts`.
    """

    updates: Updates
    fit: Ints
    labels: Ints
    ask: Ints
    options: int
    nuisance: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    denoise: Denoise | None = None
    modes: Modes | None = None
    part_of: PartOf | None = None

    def parts(self) -> Iterator[tuple[NDArray[np.intp], Problem]]:
        """Yield, mode by mode, positions among ``ask`` and the problem without modes that asks for these rows."""
        if self.modes is None:
            yield np.arange(len(self.ask)), self
            return
        for mode in np.unique(self.modes.ask):
            ask = np.flatnonzero(self.modes.ask == mode)
            fit = np.flatnonzero(np.isin(self.modes.fit, (NO_MODE, mode)))
            part = replace(self, modes=None, part_of=PartOf(whole=self, columns=fit))
            yield ask, replace(part, fit=self.fit[fit], labels=self.labels[fit], ask=self.ask[ask])


@dataclass(frozen=True, kw_only=True)
class PartOf:
    """What a problem is a part of: kernels with the whole's fit rows serve all parts, each with its own ``columns``."""

    whole: Problem
    columns: NDArray[np.intp]


Criterion = Literal["log-loss", "ap"]


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A problem whose answers (q,) the adversary knows, because it made the updates; settings are chosen by ``by``."""

    problem: Problem
    answers: Ints
    by: Criterion = "log-loss"


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
