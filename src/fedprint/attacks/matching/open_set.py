"""Re-identification among seen users with the answer "none of them" (gradient-leaks, 6.1.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from fedprint.attacks.features import Block, Updates
from fedprint.attacks.matching.metric import Gram, similarity
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.reidentify import TEMPERATURES
from fedprint.attacks.reidentification.ridge import combined, ridge_scores
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import RowsOf
from fedprint.types import Ints, Scores


@dataclass(frozen=True, kw_only=True)
class World:
    """The users from whom the adversary learns: labels (m,) of seen users, ascending, and of holdout users."""

    seen: Ints
    holdout: Ints

    @property
    def known(self) -> Ints:
        """Labels of all users whose prior the adversary has: first the seen users, then the holdout users."""
        return np.concatenate([self.seen, self.holdout])

    def columns(self, labels: Ints) -> Ints:
        """Return the positions (n,) of labels (n,) among the known users, -1 for unseen users."""
        position = {int(label): i for i, label in enumerate(self.known)}
        return np.array([position.get(int(label), -1) for label in labels], dtype=np.int64)

    def problem(self, updates: Updates, fit: Ints, labels: Ints, ask: Ints) -> Problem:
        """Return the problem of naming a known user, given ``fit`` rows of known users with ``labels`` (p,)."""
        return Problem(updates=updates, fit=fit, labels=self.columns(labels), ask=ask, options=len(self.known))


class Namer(Protocol):
    """An attack among known users: scores (q, options) of a problem, higher = more likely."""

    def scores(self, problem: Problem) -> Scores:
        """Learn from the fit rows and answer."""


@dataclass(frozen=True, kw_only=True)
class ByMetric:
    """Mean learned similarity to a user's updates (matching/metric.py); ``gram`` has all rows to fit."""

    gram: Gram
    shrinkage: float

    def scores(self, problem: Problem) -> Scores:
        """Return mean similarities."""
        nearness, present = similarity(self.gram, problem.fit, problem.labels, self.shrinkage).of_classes()
        return _unrecorded_last(nearness[problem.ask], present, problem.options)


@dataclass(frozen=True, kw_only=True)
class ByRidge:
    """Ridge regression on one-hot users, on chosen blocks with a chosen penalty."""

    blocks: tuple[Block, ...]
    penalty: float
    work: Workspace

    def scores(self, problem: Problem) -> Scores:
        """Return regression outputs."""
        outputs = ridge_scores(combined(problem, self.blocks, self.work), problem, self.penalty)
        present = np.unique(problem.labels)
        return _unrecorded_last(outputs[:, present], present, problem.options)


def _unrecorded_last(scores: Scores, present: Ints, options: int) -> Scores:
    """Return scores (q, options) from those of the options ``present``: all others, without a record, come last."""
    full = np.tile(scores.min(1, keepdims=True) - 1, (1, options))
    full[:, present] = scores
    return full


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The ``temperature`` of scores, and the log-probability ``threshold`` of the best user for "none of them".

    ``log_loss`` (nats) is the loss in validation with them.
    """

    temperature: float
    threshold: float
    log_loss: float = float("nan")


def folds_of(folds: Sequence[Validation], labels: Ints) -> tuple[Validation, ...]:
    """Return the validation problems with some users (labels) only, on a table without the rows of other users."""
    masks = [(np.isin(fold.problem.labels, labels), np.isin(fold.answers, labels)) for fold in folds]
    pairs = [(fold.problem.fit[fit], fold.problem.ask[ask]) for fold, (fit, ask) in zip(folds, masks, strict=True)]
    rows = np.unique(np.concatenate([part for pair in pairs for part in pair]))
    table = RowsOf(updates=folds[0].problem.updates, rows=rows)
    restricted = []
    for fold, (fit, ask), (fit_rows, ask_rows) in zip(folds, masks, pairs, strict=True):
        problem = Problem(
            updates=table,
            fit=np.searchsorted(rows, fit_rows),
            labels=fold.problem.labels[fit],
            ask=np.searchsorted(rows, ask_rows),
            options=fold.problem.options,
        )
        restricted.append(Validation(problem=problem, answers=fold.answers[ask]))
    return tuple(restricted)


def answer_open(scores: Scores, seen: int, calibration: Calibration) -> Scores:
    """Return log-probabilities (q, seen) and in a last column the score of "none of them".

    ``scores`` (q, known) are of the seen users first, then of the holdout users. An update that resembles holdout users
    as much as a seen user is probably not from that user. The last column is above all others exactly where the best
    seen user is below the threshold.
    """
    log_p = _log_posterior(scores, seen, calibration.temperature)
    best = log_p.max(1, keepdims=True)
    answered: Scores = np.concatenate([log_p, 2 * calibration.threshold - best], axis=1)
    return answered


def _log_posterior(scores: Scores, seen: int, temperature: float) -> Scores:
    log_p: Scores = log_softmax(temperature * scores, axis=1)[:, :seen]
    return log_p


def calibrate(folds: Sequence[Validation], world: World, namer: Namer, rng: np.random.Generator) -> Calibration:
    """Choose temperature and threshold across devices, on validation problems of the known users.

    Each half of the holdout users in turn takes the part of the unseen users.
    """
    order = rng.permutation(world.holdout)
    halves = (order[::2], order[1::2])
    cases = [_case(fold, World(seen=world.seen, holdout=cohort), namer) for fold in folds for cohort in halves]
    losses = [(float(np.mean([case.log_loss(t) for case in cases])), t) for t in TEMPERATURES]
    loss, temperature = min(losses)
    best = np.concatenate([case.log_posterior(temperature).max(1) for case in cases])
    strange = np.concatenate([case.columns < 0 for case in cases])
    return Calibration(temperature=temperature, threshold=balanced_threshold(best, strange), log_loss=loss)


def _case(fold: Validation, world: World, namer: Namer) -> _Case:
    """Learn from the world's users; ask for the seen users and for all that are not in the world."""
    problem = fold.problem
    fit = np.isin(problem.labels, world.known)
    asked = ~np.isin(fold.answers, world.holdout)
    small = world.problem(problem.updates, problem.fit[fit], problem.labels[fit], problem.ask[asked])
    return _Case(scores=namer.scores(small), seen=len(world.seen), columns=world.columns(fold.answers[asked]))


@dataclass(frozen=True, kw_only=True)
class _Case:
    """An open world inside the prior: ``scores`` (q, known), and the true ``columns`` (q,), -1 for unseen users."""

    scores: Scores
    seen: int
    columns: Ints

    def log_posterior(self, temperature: float) -> Scores:
        """Log-probabilities (q, seen) among seen and holdout users."""
        return _log_posterior(self.scores, self.seen, temperature)

    def log_loss(self, temperature: float) -> float:
        """Mean negative log-probability of the right user, or of "none of them", which has the rest."""
        log_p = self.log_posterior(temperature)
        none = np.log(np.maximum(1 - np.exp(logsumexp(log_p, axis=1)), 1e-9))
        right = np.where(self.columns < 0, none, log_p[np.arange(len(log_p)), self.columns])
        return float(-right.mean())


def balanced_threshold(scores: Scores, strange: NDArray[np.bool_]) -> float:
    """Return the threshold on scores (n,) with the best mean of both hit rates: ``strange`` below, the others above."""
    order = np.argsort(scores)
    below = np.concatenate([[0.0], np.cumsum(strange[order]) / max(strange.sum(), 1)])
    above = 1 - np.concatenate([[0.0], np.cumsum(~strange[order]) / max((~strange).sum(), 1)])
    cut = int(np.argmax(below + above))
    ordered = np.concatenate([scores[order[:1]] - 1, scores[order], scores[order[-1:]] + 1])
    return float((ordered[cut] + ordered[cut + 1]) / 2)
