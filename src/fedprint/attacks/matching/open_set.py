"""Re-identification among seen users with the answer "none of them" (gradient-leaks, 6.1.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from fedprint.attacks.features import Updates
from fedprint.attacks.matching.metric import Gram, similarity
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.reidentify import TEMPERATURES, Block, Workspace, combined, ridge_scores
from fedprint.attacks.updates import RowsOf
from fedprint.types import Ints, Scores


@dataclass(frozen=True, kw_only=True)
class World:
    """What the adversary may learn from: labels (m,) of seen users, ascending, and of the holdout users."""

    seen: Ints
    holdout: Ints

    @property
    def known(self) -> Ints:
        """Labels of all users whose prior the adversary has: the seen first, then the cohort."""
        return np.concatenate([self.seen, self.holdout])

    def columns(self, labels: Ints) -> Ints:
        """Return the positions (n,) of labels (n,) among the known, -1 for strangers."""
        place = {int(label): i for i, label in enumerate(self.known)}
        return np.array([place.get(int(label), -1) for label in labels], dtype=np.int64)

    def problem(self, updates: Updates, fit: Ints, labels: Ints, ask: Ints) -> Problem:
        """Return the problem of naming a known user, given ``fit`` rows of known users with ``labels`` (p,)."""
        return Problem(updates=updates, fit=fit, labels=self.columns(labels), ask=ask, options=len(self.known))


class Namer(Protocol):
    """A way to tell known users apart: scores (q, options) of a problem, higher = more likely."""

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
    """Return scores (q, options) from those of the options ``present``: of the others nothing was recorded."""
    found = np.tile(scores.min(1, keepdims=True) - 1, (1, options))
    found[:, present] = scores
    return found


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """``temperature`` of scores; below the log-probability ``threshold`` of the best user none is likely.

    ``log_loss`` (nats) is what validation found with them.
    """

    temperature: float
    threshold: float
    log_loss: float = float("nan")


def folds_of(folds: Sequence[Validation], labels: Ints) -> tuple[Validation, ...]:
    """Return the validation problems of some users (labels) only, on a table without the rows of all others."""
    masks = [(np.isin(fold.problem.labels, labels), np.isin(fold.answers, labels)) for fold in folds]
    pairs = [(fold.problem.fit[fit], fold.problem.ask[ask]) for fold, (fit, ask) in zip(folds, masks, strict=True)]
    rows = np.unique(np.concatenate([part for pair in pairs for part in pair]))
    table = RowsOf(updates=folds[0].problem.updates, rows=rows)
    found = []
    for fold, (fit, ask), (taught, asked) in zip(folds, masks, pairs, strict=True):
        problem = Problem(
            updates=table,
            fit=np.searchsorted(rows, taught),
            labels=fold.problem.labels[fit],
            ask=np.searchsorted(rows, asked),
            options=fold.problem.options,
        )
        found.append(Validation(problem=problem, answers=fold.answers[ask]))
    return tuple(found)


def answer_open(scores: Scores, seen: int, calibration: Calibration) -> Scores:
    """Return log-probabilities (q, seen) and in a last column the score of "none of them".

    ``scores`` (q, known) are of the seen users first, then of the holdout users. Those are the cohort: whoever
    resembles them as much as a seen user is not that user. The last column is above all others exactly where the best
    seen user is below the threshold.
    """
    log_p = _log_posterior(scores, seen, calibration.temperature)
    best = log_p.max(1, keepdims=True)
    answered: Scores = np.concatenate([log_p, 2 * calibration.threshold - best], axis=1)
    return answered


def _log_posterior(scores: Scores, seen: int, temperature: float) -> Scores:
    found: Scores = log_softmax(temperature * scores, axis=1)[:, :seen]
    return found


def calibrate(folds: Sequence[Validation], world: World, namer: Namer, rng: np.random.Generator) -> Calibration:
    """Choose temperature and threshold across devices, on validation problems of the known users.

    One half of the holdout users plays the strangers, then the other.
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
    """Learn from the world's users; ask for the seen and for all that it does not know."""
    problem = fold.problem
    fit = np.isin(problem.labels, world.known)
    asked = ~np.isin(fold.answers, world.holdout)
    small = world.problem(problem.updates, problem.fit[fit], problem.labels[fit], problem.ask[asked])
    return _Case(scores=namer.scores(small), seen=len(world.seen), columns=world.columns(fold.answers[asked]))


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A small open world inside the prior: ``scores`` (q, known); ``columns`` (q,) are right ones, -1 for strangers."""

    scores: Scores
    seen: int
    columns: Ints

    def log_posterior(self, temperature: float) -> Scores:
        """Log-probabilities (q, seen) among seen and cohort."""
        return _log_posterior(self.scores, self.seen, temperature)

    def log_loss(self, temperature: float) -> float:
        """Mean negative log-probability of the right user, or of "none of them", which has what the seen leave."""
        log_p = self.log_posterior(temperature)
        none = np.log(np.maximum(1 - np.exp(logsumexp(log_p, axis=1)), 1e-9))
        right = np.where(self.columns < 0, none, log_p[np.arange(len(log_p)), self.columns])
        return float(-right.mean())


def balanced_threshold(scores: Scores, strange: NDArray[np.bool_]) -> float:
    """Return the threshold on scores (n,) with the best mean of both hit rates: strangers below, the others above."""
    order = np.argsort(scores)
    below = np.concatenate([[0.0], np.cumsum(strange[order]) / max(strange.sum(), 1)])
    above = 1 - np.concatenate([[0.0], np.cumsum(~strange[order]) / max((~strange).sum(), 1)])
    cut = int(np.argmax(below + above))
    ordered = np.concatenate([scores[order[:1]] - 1, scores[order], scores[order[-1:]] + 1])
    return float((ordered[cut] + ordered[cut + 1]) / 2)
