"""The problem of an attack: name the senders of updates, given others whose senders the adversary knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedprint.attacks.denoise import Denoise
from fedprint.attacks.features import Updates
from fedprint.attacks.view import AttackerView
from fedprint.types import FedprintError, Ints, Questions

MORE_ROUNDS = "train more rounds (federation.rounds) or raise federation.fraction"
"""The remedy in error messages where too little was recorded."""

NO_MODE = -1
"""Mode of a device that has none, or an unknown one."""


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Modes of the ``fit`` rows (p,), :data:`NO_MODE` for rows that all modes use, and of the ``ask`` rows (q,)."""

    fit: Ints
    ask: Ints


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Name the sender of the ``ask`` rows, given ``fit`` rows with ``labels`` (p,) in [0, m).

    ``nuisance`` are rows of devices without any user's data. Kernel attacks remove them from the others as ``denoise``
    says (attacks/denoise.py); None removes nothing. With ``modes`` the attack learns, for each asked row, from the rows
    of its mode and those without a mode, in one of :meth:`parts`.
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

    def without(self, rows: Ints) -> Problem:
        """Return the problem that learns from none of these rows of its table."""
        kept = np.flatnonzero(~np.isin(self.fit, rows))
        modes = self.modes and Modes(fit=self.modes.fit[kept], ask=self.modes.ask)
        return replace(self, fit=self.fit[kept], labels=self.labels[kept], modes=modes)

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
    """The whole of which a problem is a part: all parts use ``columns`` of the kernels with the whole's fit rows."""

    whole: Problem
    columns: NDArray[np.intp]


Criterion = Literal["log-loss", "ap"]


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A problem whose answers (q,) the adversary knows, because it made the updates; ``by`` is the criterion."""

    problem: Problem
    answers: Ints
    by: Criterion = "log-loss"


def among(problem: Problem, columns: Sequence[int], ask: Ints) -> Problem:
    """Return the problem with the options ``columns`` only (positions in the old ones), asking the rows ``ask``."""
    position = {column: i for i, column in enumerate(columns)}
    keep = np.isin(problem.labels, columns)
    labels = np.array([position[int(label)] for label in problem.labels[keep]], dtype=np.int64)
    return replace(problem, fit=problem.fit[keep], labels=labels, ask=ask, options=len(columns))


def of_some_users(validation: Validation, most: int) -> Validation:
    """Return the validation problem among ``most`` of its users, evenly spread; itself where it has no more."""
    options = validation.problem.options
    return validation if options <= most else among_users(validation, evenly_spread(options, most))


def evenly_spread(n: int, most: int) -> Ints:
    """Return at most ``most`` of the positions below n, the first and the last among them."""
    return np.linspace(0, n - 1, min(n, most)).round().astype(np.int64)


def among_users(validation: Validation, users: Ints) -> Validation:
    """Return the validation problem that knows of the options ``users`` (sorted) only, and asks about no others."""
    problem = validation.problem
    asked = np.isin(validation.answers, users)
    few = among(problem, users.tolist(), problem.ask[asked])
    if problem.modes is not None:
        modes = Modes(fit=problem.modes.fit[np.isin(problem.labels, users)], ask=problem.modes.ask[asked])
        few = replace(few, modes=modes)
    return replace(validation, problem=few, answers=np.searchsorted(users, validation.answers[asked]))


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
