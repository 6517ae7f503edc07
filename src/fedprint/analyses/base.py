"""What an analysis is, and what it may look at in each of its three places.

``ask`` runs where the truth is known and writes questions and, apart from them, answers. ``trials`` runs where the
adversary is: it gets a :class:`Bench`, which has no field for the truth. ``exhibit`` describes the data with everything
known and attacks nothing. An analysis implements what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from fedprint.attacks.reidentification.reidentify import Attack, Tuned, Workspace, answer
from fedprint.attacks.view import AttackerView
from fedprint.component import Component
from fedprint.data.dataset import Task
from fedprint.data.splits import Prior
from fedprint.rng import torch_rng
from fedprint.store.reader import UpdateStore
from fedprint.types import Examples, FedprintError, Floats, Ints, Questions, Scores, User


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything, for asking questions: ``index`` is the store's (one row per observation), ``owner`` (rows,) users."""

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
    """The adversary's desk: its view, its questions, and its attacks as tuned on prior data by the attack stage.

    ``attacks`` maps a name to the attack and what validation chose for it; ``selected`` is the best of them there.
    ``class_names`` and ``task`` are public. ``ready`` makes model input of raw examples. ``progress`` takes a note.
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
        """Validation problems across devices, made of the prior alone."""
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
        """Return a generator of the adversary's own."""
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
    """Everything, for describing: no attack reads it. ``owner`` and ``role`` (rows,) go with the store's index.

    Users' examples are raw (``x`` uint8 or token ids), ``features`` maps a user's examples to penultimate activations
    (n, f) of the final model, None where it has none. ``ap`` maps user id to the selected attacker's AP per update.
    ``trials`` are the adversary's answers of one analysis by its name.
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

    ``priors`` are those under which it runs, all of the experiment's by default: the papers show some figures for one
    prior only.
    """

    priors: tuple[Prior, ...] | None = None

    knows_defences: ClassVar[bool] = False
    """Whether its adversary applies the defences to its own devices. Others learn from what was recorded of them."""

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
    """Return the problem with some fit rows (mask (p,)) or other asked rows; no fit row left is an error."""
    if fit is not None:
        if not fit.any():
            raise FedprintError("analyses: a condition leaves no prior update to learn from; record more rounds")
        problem = replace(problem, fit=problem.fit[fit], labels=problem.labels[fit])
    return problem if ask is None else replace(problem, ask=ask)


def among(problem: Problem, columns: Sequence[int], ask: Ints) -> Problem:
    """Return the problem with the options ``columns`` only (positions in the old ones), asking the rows ``ask``."""
    place = {column: i for i, column in enumerate(columns)}
    keep = np.isin(problem.labels, columns)
    labels = np.array([place[int(label)] for label in problem.labels[keep]], dtype=np.int64)
    return replace(problem, fit=problem.fit[keep], labels=labels, ask=ask, options=len(columns))
