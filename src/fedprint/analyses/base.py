"""The base of all analyses, and what each of their three methods may read.

``ask`` knows the truth: it writes questions and, in other files, their answers. ``trials`` is the adversary: it gets a
:class:`Bench`, which has no field for the truth. ``exhibit`` knows everything and describes the data without an attack.
An analysis implements the methods that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fedprint.analyses.trials import UPDATES, Asked, Key, QuestionSet, Trial
from fedprint.attacks.adversary.shadow_validation import validations
from fedprint.attacks.problem import Problem, Validation, attack_problem
from fedprint.attacks.reidentification.reidentify import Tuned, answer
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.attacks.view import AttackerView
from fedprint.component import Component
from fedprint.data.dataset import Task
from fedprint.data.splits import Prior
from fedprint.rng import torch_rng
from fedprint.store.reader import UpdateStore
from fedprint.types import Examples, FedprintError, Floats, Ints, Questions, Scores, User


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything, for asking questions: ``index`` is the store's, ``owner`` (rows,) the users of its observations."""

    index: pd.DataFrame
    owner: Ints
    prior: tuple[User, ...]
    private: tuple[User, ...]
    class_names: tuple[str, ...]
    task: Task
    seed: int

    def rows(self, role: str) -> Ints:
        """Return the observations (positions in ``index``) that devices of ``role`` sent."""
        return np.flatnonzero((self.index["role"] == role).to_numpy())

    @property
    def users(self) -> tuple[int, ...]:
        """User ids, ascending."""
        return tuple(sorted(user.user_id for user in self.private))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """All that the adversary has: its view, its questions, and its attacks as the attack stage tuned them.

    ``attacks`` maps a name to the attack and the settings that validation chose. ``selected`` is the attack with the
    best validation. ``class_names`` and ``task`` are public. ``ready`` turns raw examples into model input.
    ``progress`` reports a note.
    """

    view: AttackerView
    everyone: Questions
    questions: Mapping[str, QuestionSet]
    attacks: Mapping[str, tuple[Attack, Tuned]]
    selected: str
    class_names: tuple[str, ...]
    task: Task
    shadow_rounds: int
    work: Workspace
    ready: Callable[[Examples], Examples]
    progress: Callable[[str], None]

    @cached_property
    def problem(self) -> Problem:
        """The closed-world problem: fit on all prior updates, ask for every anonymous one."""
        return attack_problem(self.view, self.everyone)

    @cached_property
    def folds(self) -> tuple[Validation, ...]:
        """Shadow validation: problems across devices, from the prior alone."""
        return validations(self.view, self.everyone, rounds=self.shadow_rounds, progress=lambda done: None)

    @property
    def options(self) -> Ints:
        """User ids, ascending: the columns of the closed world."""
        return np.array(self.everyone.options, dtype=np.int64)

    def attack(self, name: str) -> tuple[Attack, Tuned]:
        """Return an attack of the experiment and its tuning. Raises FedprintError for one that is not configured."""
        chosen = self.selected if name == SELECTED else name
        if chosen not in self.attacks:
            raise FedprintError(f"analyses: no attack '{name}' in this experiment; choose of {', '.join(self.attacks)}")
        return self.attacks[chosen]

    def scores(self, name: str, problem: Problem, *path: object) -> Scores:
        """Answer a problem with a tuned attack; ``path`` names the seed. Log-probabilities (q, m)."""
        attack, tuned = self.attack(name)
        return answer(attack, problem, tuned, self.work, self.rng(attack.name, *path)).scores

    def rng(self, *path: object) -> torch.Generator:
        """Return a generator from the adversary's seed and a ``path``."""
        return torch_rng(self.view.seed, "analysis", *path)

    def trial(self, problem: Problem, scores: Scores, keys: Mapping[str, Key], options: Ints | None = None) -> Trial:
        """Return a trial on :data:`UPDATES`: ``problem.ask`` are rows of the store, ``options`` all users if None."""
        position = {int(row): i for i, row in enumerate(self.view.anonymous_rows)}
        rows = np.array([position[int(row)] for row in problem.ask], dtype=np.int64)
        chosen = self.options if options is None else options
        return Trial(questions=UPDATES, rows=rows, options=chosen, scores=scores, keys=keys)


SELECTED = "selected"
"""In a configuration: the attack that validation chose."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything, for describing: no attack reads it. ``owner`` (rows,) are the users of the store's rows.

    Users' examples are raw (``x`` uint8 or token ids). ``features`` maps a user's examples to penultimate activations
    (n, f) of the final model, None where it has none. ``ap`` maps user id to the selected attack's AP per update.
    ``trials`` returns the adversary's answers of an analysis.
    """

    store: UpdateStore
    owner: Ints
    prior: tuple[User, ...]
    private: tuple[User, ...]
    class_names: tuple[str, ...]
    task: Task
    features: Callable[[User], Floats] | None
    ap: Mapping[int, float]
    trials: Callable[[str], tuple[Trial, ...]]
    seed: int


class Analysis(Component):
    """Base of every analysis; ``name`` is unique inside an experiment.

    It runs under ``priors``, by default under all of the experiment: the papers show some figures for one prior only.
    """

    priors: tuple[Prior, ...] | None = None

    knows_defences: ClassVar[bool] = False
    """Whether its adversary defends its shadow devices. In other analyses it learns from recorded updates."""

    def ask(self, facts: Facts) -> Iterable[Asked]:
        """Return question sets with their answers; none where :data:`~fedprint.analyses.trials.UPDATES` suffices."""
        return ()

    def trials(self, bench: Bench) -> Iterable[Trial]:
        """Return the adversary's answers."""
        return ()

    def exhibit(self, scene: Scene) -> Mapping[str, Any] | None:
        """Return a JSON-ready description of data or updates, None for nothing to show."""
        return None


def restricted(problem: Problem, *, fit: NDArray[np.bool_] | None = None, ask: Ints | None = None) -> Problem:
    """Return the problem with some of the fit rows (mask (p,)), or with other asked rows; an empty fit is an error."""
    if fit is not None:
        if not fit.any():
            raise FedprintError("analyses: a condition leaves no prior update to learn from; record more rounds")
        problem = replace(problem, fit=problem.fit[fit], labels=problem.labels[fit])
    return problem if ask is None else replace(problem, ask=ask)
