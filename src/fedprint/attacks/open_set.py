"""Re-identification among seen users with the answer "none of them" (gradient-leaks, 6.1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from fedprint.attacks.features import Updates
from fedprint.attacks.metric import Gram, Learned, MetricSettings, grams, similarity, taught_rows
from fedprint.attacks.pairs import Ints, Scores
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentify import TEMPERATURES


@dataclass(frozen=True, kw_only=True)
class World:
    """What the adversary may learn from: labels (m,) of seen users, ascending, and of the holdout users."""

    seen: Ints
    holdout: Ints

    @property
    def known(self) -> Ints:
        """Labels of all users whose prior the adversary has."""
        return np.concatenate([self.seen, self.holdout])


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """``temperature`` of similarities; below the log-probability ``threshold`` of the best user none is likely."""

    temperature: float
    threshold: float


@dataclass(frozen=True, kw_only=True)
class RowsOf:
    """Some ``rows`` (k,) of a table of updates, as a table."""

    updates: Updates
    rows: Ints

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return self.updates.layers

    @property
    def sizes(self) -> dict[str, int]:
        """Columns of each layer."""
        return self.updates.sizes

    def blocks(self, layers: Sequence[str] | None = None, *, columns: int = 1 << 14) -> Iterator[NDArray[np.floating]]:
        """Yield the chosen layers in column blocks (k, <= columns)."""
        for block in self.updates.blocks(layers, columns=columns):
            yield block[self.rows]


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


def answer_open(learned: Learned, world: World, calibration: Calibration, ask: Ints) -> Scores:
    """Return log-probabilities (q, seen) and in a last column the score of "none of them".

    The holdout users are the cohort: whoever resembles them as much as a seen user is not that user. The last column is
    above all others exactly where the best seen user is below the threshold.
    """
    log_p = _log_posterior(learned, world, calibration.temperature, ask)
    best = log_p.max(1, keepdims=True)
    scores: Scores = np.concatenate([log_p, 2 * calibration.threshold - best], axis=1)
    return scores


def _log_posterior(learned: Learned, world: World, temperature: float, ask: Ints) -> Scores:
    nearness, present = learned.of_classes()
    log_p = log_softmax(temperature * nearness[ask], axis=1)
    floor = log_p.min(1, keepdims=True) - 1.0  # a seen user without a recorded update
    padded = np.concatenate([log_p, floor], axis=1)
    place = {int(label): i for i, label in enumerate(present)}
    found: Scores = padded[:, [place.get(int(label), -1) for label in world.seen]]
    return found


def calibrate(
    folds: Sequence[Validation], world: World, settings: MetricSettings, rng: np.random.Generator
) -> Calibration:
    """Choose temperature and threshold across devices, on validation problems of the known users.

    One half of the holdout users plays the strangers, then the other.
    """
    (_, gram), *_ = grams(folds[0].problem.updates, taught_rows(folds), [settings.block])
    order = rng.permutation(world.holdout)
    halves = (order[::2], order[1::2])
    cases = [
        _case(fold, World(seen=world.seen, holdout=cohort), gram, settings.shrinkage)
        for fold in folds
        for cohort in halves
    ]
    temperature = min(TEMPERATURES, key=lambda t: float(np.mean([case.log_loss(t) for case in cases])))
    best = np.concatenate([case.log_posterior(temperature).max(1) for case in cases])
    strange = np.concatenate([case.columns < 0 for case in cases])
    return Calibration(temperature=temperature, threshold=balanced_threshold(best, strange))


def _case(fold: Validation, world: World, gram: Gram, shrinkage: float) -> _Case:
    """Learn from the world's users; ask for the seen and for all that it does not know."""
    problem = fold.problem
    fit = np.isin(problem.labels, world.known)
    asked = ~np.isin(fold.answers, world.holdout)
    place = {int(label): i for i, label in enumerate(world.seen)}
    return _Case(
        learned=similarity(gram, problem.fit[fit], problem.labels[fit], shrinkage),
        world=world,
        ask=problem.ask[asked],
        columns=np.array([place.get(int(answer), -1) for answer in fold.answers[asked]], dtype=np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A small open world inside the prior; ``columns`` (q,) are right places in ``world.seen``, -1 for strangers."""

    learned: Learned
    world: World
    ask: Ints
    columns: Ints

    def log_posterior(self, temperature: float) -> Scores:
        """Log-probabilities (q, seen) among seen and cohort."""
        return _log_posterior(self.learned, self.world, temperature, self.ask)

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
