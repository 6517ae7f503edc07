"""Attribute inference: an attribute of the user who sent an update (gradient-leaks, 6.1.3; papers.md 2.3).

The papers' networks have the architecture of the re-identification MLP: one head for one task (STL), or two heads on
one hidden layer that learn user and attribute together (MTL). There are two strong attacks. One is a ridge on
attributes, whose layers and transforms are chosen on held-out users; its transforms are of single rows, so that the
kernels of many folds of users are slices of one. The other is the re-identification posterior, summed over the users of
a class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp
from torch import Tensor, nn
from torch.nn import functional

from fedprint.attacks.features import ROW_WISE
from fedprint.attacks.learner import MlpSettings, OneHiddenLayer, train
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.reidentify import best_temperature
from fedprint.attacks.reidentification.ridge import candidate_blocks, choose_kernel, combined, ridge_scores
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.models.batches import ShuffledBatches
from fedprint.types import Examples, FedprintError, Floats, Ints, Scores


@dataclass(frozen=True, kw_only=True)
class Task:
    """One head: the class ``labels`` (p,) of the rows, and the weight of its cross-entropy in the sum."""

    labels: Ints
    classes: int
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """The training data of a network: rows ``x`` (p, d), ``tasks`` by name, and when to stop.

    The ``held`` (p,) rows are held out; training stops early on the loss of the tasks ``stop_on`` there.
    """

    x: Floats
    tasks: Mapping[str, Task]
    held: NDArray[np.bool_]
    stop_on: tuple[str, ...]


class MultiTaskMlp(OneHiddenLayer):
    """One hidden layer, one softmax head per task; with one task it is the re-identification network."""

    def __init__(self, inputs: int, tasks: Mapping[str, Task], settings: MlpSettings, rng: torch.Generator) -> None:
        super().__init__(inputs, settings)
        self.weights = {name: task.weight for name, task in tasks.items()}
        self.stop_on: tuple[str, ...] = tuple(tasks)
        self.heads = nn.ModuleDict({name: nn.Linear(settings.hidden, task.classes) for name, task in tasks.items()})
        self.initialise_all(rng)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Scores (b, classes) per task of updates (b, inputs)."""
        h = self.activations(x)
        return {name: head(h) for name, head in self.heads.items()}

    def loss(self, batch: Examples) -> Tensor:
        """Weighted sum of the tasks' cross-entropies."""
        return self._loss(batch, tuple(self.weights))

    def held_loss(self, batch: Examples) -> Tensor:
        """Weighted sum of the cross-entropies on which training stops."""
        return self._loss(batch, self.stop_on)

    def _loss(self, batch: Examples, names: Sequence[str]) -> Tensor:
        scores = self(batch["x"])
        losses = [self.weights[name] * functional.cross_entropy(scores[name], batch[name]) for name in names]
        return torch.stack(losses).sum()


def fit_heads(lesson: Lesson, ask: Floats, settings: MlpSettings, rng: torch.Generator) -> dict[str, Scores]:
    """Train the network and return log-probabilities (q, classes) of the rows ``ask`` (q, d) per task."""
    if lesson.held.all() or not lesson.held.any():
        raise FedprintError("attribute inference needs prior updates to learn from and others to stop on; record more")
    module = MultiTaskMlp(lesson.x.shape[1], lesson.tasks, settings, rng)
    module.stop_on = lesson.stop_on
    columns = {"x": torch.from_numpy(np.ascontiguousarray(lesson.x))}
    columns |= {name: torch.from_numpy(task.labels) for name, task in lesson.tasks.items()}
    kept, held = (torch.from_numpy(np.flatnonzero(rows)) for rows in (~lesson.held, lesson.held))
    train(
        module,
        ShuffledBatches({name: column[kept] for name, column in columns.items()}, settings.batch_size, rng),
        ShuffledBatches({name: column[held] for name, column in columns.items()}, len(held), rng),
        epochs=settings.epochs,
        patience=settings.patience,
    )
    with torch.no_grad():
        answers = module(torch.from_numpy(np.ascontiguousarray(ask)))
    return {name: scores.log_softmax(1).double().numpy() for name, scores in answers.items()}


def held_rows(rows: int, rng: torch.Generator) -> NDArray[np.bool_]:
    """Return a mask (rows,) of a tenth of the rows, at least one."""
    held = np.zeros(rows, dtype=bool)
    held[torch.randperm(rows, generator=rng)[: max(1, rows // 10)].numpy()] = True
    return held


def held_users(users: Ints, rng: torch.Generator) -> NDArray[np.bool_]:
    """Return a mask (p,) of all rows of a fifth of the ``users`` (p,), at least of one user."""
    everyone = np.unique(users)
    drawn = torch.randperm(len(everyone), generator=rng)[: max(1, len(everyone) // 5)].numpy()
    return np.isin(users, everyone[drawn])


def deal_folds(classes: Ints, folds: int, rng: torch.Generator) -> Ints:
    """Deal users with ``classes`` (u,) into folds (u,) so that every class is spread over as many folds as possible."""
    order = torch.randperm(len(classes), generator=rng).numpy()
    order = order[np.argsort(classes[order], kind="stable")]
    dealt = np.empty(len(classes), dtype=np.int64)
    dealt[order] = np.arange(len(classes)) % folds
    return dealt


def ridge_attribute(problem: Problem, users: Ints, work: Workspace, rng: torch.Generator) -> Scores:
    """Return log-probabilities (q, classes) by ridge regression on attribute classes.

    ``problem.labels`` are classes, and ``users`` (p,) are the senders of the fit rows. Block, penalty and temperature
    are chosen with one half of the users for learning and the other for testing, and back: on users that it has learned
    from, a fit would only recognise the user.
    """
    everyone, first = np.unique(users, return_index=True)
    half = deal_folds(problem.labels[first], 2, rng)[np.searchsorted(everyone, users)]
    folds = [
        Validation(problem=_other_half(problem, half == side), answers=problem.labels[half != side]) for side in (0, 1)
    ]
    blocks, penalty = choose_kernel(folds, work, candidate_blocks(problem.updates, None, ROW_WISE), most=1)
    tried = [ridge_scores(combined(fold.problem, blocks, work), fold.problem, penalty) for fold in folds]
    _, temperature = best_temperature(np.concatenate(tried), np.concatenate([fold.answers for fold in folds]))
    scores = ridge_scores(combined(problem, blocks, work), problem, penalty)
    result: Scores = log_softmax(temperature * scores, axis=1)
    return result


def _other_half(problem: Problem, learned: NDArray[np.bool_]) -> Problem:
    if learned.all() or not learned.any():
        raise FedprintError("attribute inference needs prior updates of two users or more; record more rounds")
    return replace(problem, fit=problem.fit[learned], labels=problem.labels[learned], ask=problem.fit[~learned])


def class_posterior(identity: Scores, class_of: Ints, classes: int) -> Scores:
    """Return log-probabilities (q, classes) from those of users (q, u), whose classes are ``class_of`` (u,).

    A class without a known user gets a probability of almost 0.
    """
    columns = [
        logsumexp(identity[:, class_of == c], axis=1) if (class_of == c).any() else np.full(len(identity), -50.0)
        for c in range(classes)
    ]
    posterior: Scores = log_softmax(np.stack(columns, axis=1), axis=1)
    return posterior
