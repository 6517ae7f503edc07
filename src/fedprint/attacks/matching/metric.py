"""A metric on updates, learned from users that need not be those of the questions: the strong matcher.

Within-class covariance normalisation (Hatch et al. 2006, known from speaker verification) in the dual: directions in
which the updates of one user differ (training progress, batch order) are shrunk, and the rest is compared by its
cosine. Everything is expressed in inner products, so that the cost does not depend on the number of parameters. Only
transforms of single rows are used: then one table of cosines serves any choice of training users.

A single prior device shows how updates of one device differ, not how two devices of a user differ. The shrinkage is
therefore chosen across devices (:mod:`fedprint.attacks.adversary.shadow_devices`).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from fedprint.attacks.features import ROW_WISE, Block, Updates, products
from fedprint.attacks.matching.pairs import balanced_pairs
from fedprint.attacks.problem import Validation
from fedprint.attacks.reidentification.reidentify import best_temperature
from fedprint.attacks.reidentification.ridge import candidate_blocks
from fedprint.types import Floats, Ints, Scores

SHRINKAGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True, kw_only=True)
class Gram:
    """Cosines (n, a) between all updates and the rows ``anchors`` (a,), ascending, under one transform."""

    anchors: Ints
    cosines: Floats

    def columns(self, rows: Ints) -> Ints:
        """Return the columns of the anchors ``rows``."""
        return np.searchsorted(self.anchors, rows)


@dataclass(frozen=True, kw_only=True)
class MetricSettings:
    """What validation chose: the block, the shrinkage as a share of the mean within-user variance, its AP there."""

    block: Block
    shrinkage: float
    ap: float

    @property
    def layers(self) -> str:
        """Layers and transform for tables: ``fc1.weight/fc1.bias:sign``."""
        return block_name(self.block)


def block_name(block: Block) -> str:
    """Return layers and transform for tables: ``fc1.weight/fc1.bias:sign``."""
    names, transform = block
    return f"{'/'.join(name for layer in names for name in layer)}:{transform}"


def grams(updates: Updates, anchors: Ints, blocks: Sequence[Block]) -> Iterator[tuple[Block, Gram]]:
    """Yield the table of each block. Layers that several blocks share are read once."""
    transforms = tuple(dict.fromkeys(transform for _, transform in blocks))
    groups = dict.fromkeys(group for layers, _ in blocks for group in layers)
    by_group = {group: products(updates, group, anchors, transforms) for group in groups}
    for layers, transform in blocks:
        total = by_group[layers[0]][transform]
        if len(layers) > 1:
            total = functools.reduce(operator.add, (by_group[group][transform] for group in layers))
        length = total.squares.sqrt().clamp_min(1e-15)
        cosines = (total.cross / length[:, None] / length[anchors][None]).numpy()
        yield (layers, transform), Gram(anchors=anchors, cosines=cosines)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """Learned cosines (n, a) between all updates and the anchors (a,), and the training rows they come from."""

    cosines: Floats
    gram: Gram
    fit: Ints
    labels: Ints

    def of_pairs(self, pairs: Ints) -> Scores:
        """Return the similarity (q,) of pairs (q, 2) of rows, the left ones anchors."""
        scores: Scores = self.cosines[pairs[:, 1], self.gram.columns(pairs[:, 0])].astype(np.float64)
        return scores

    def of_classes(self) -> tuple[Scores, Ints]:
        """Return each update's mean similarity to each label's training rows (n, m'), and the labels (m',)."""
        present, index = np.unique(self.labels, return_inverse=True)
        member = np.eye(len(present))[index]
        nearness: Scores = self.cosines[:, self.gram.columns(self.fit)].astype(np.float64) @ (member / member.sum(0))
        return nearness, present


def learn(updates: Updates, anchors: Ints, fit: Ints, labels: Ints, settings: MetricSettings) -> Learned:
    """Learn the metric from ``fit`` rows with ``labels`` (p,), to compare updates with ``anchors``, a superset."""
    (_, gram), *_ = grams(updates, anchors, [settings.block])
    return similarity(gram, fit, labels, settings.shrinkage)


def similarity(gram: Gram, fit: Ints, labels: Ints, shrinkage: float) -> Learned:
    """Learn from ``fit`` rows, which must be anchors, with ``labels`` (p,).

    No other row influences the similarity of two rows.
    """
    k, inner = _centred(gram, fit)
    within = _deviations(inner, labels)
    scatter = _deviations(within[fit].T, labels).T
    lower = _factor(scatter, shrinkage * max(float(np.trace(scatter)), 1e-12))
    shrunk = solve_triangular(lower, within.T, lower=True).T  # the part in the shrunk directions, (n, p)
    left = k - shrunk @ shrunk[gram.anchors].T
    length = np.sqrt(np.maximum(1 - np.square(shrunk).sum(1), 1e-9))
    cosines = (left / length[:, None] / length[gram.anchors][None]).astype(np.float32)
    return Learned(cosines=cosines, gram=gram, fit=fit, labels=labels)


def _factor(scatter: Scores, ridge: float) -> Scores:
    """Return the Cholesky factor of ``scatter + ridge I``; negative eigenvalues from rounding need a larger ridge."""
    while True:
        try:
            lower: Scores = cholesky(scatter + ridge * np.eye(len(scatter)), lower=True)
            return lower
        except LinAlgError:
            ridge *= 10


def _centred(gram: Gram, fit: Ints) -> tuple[Scores, Scores]:
    """Centre on the fit rows' mean and normalise again: all columns (n, a) and those of the fit rows (n, p)."""
    columns = gram.columns(fit)
    to_mean = gram.cosines[:, columns].mean(1, dtype=np.float64)
    square = to_mean[fit].mean()
    length = np.sqrt(np.maximum(1 - 2 * to_mean + square, 1e-12))
    k = gram.cosines - to_mean[:, None] - to_mean[gram.anchors][None] + square
    k /= length[:, None] * length[gram.anchors][None]
    return k, k[:, columns]


def _deviations(columns: Scores, labels: Ints) -> Scores:
    """Subtract from each column (n, p) the mean of the columns with its label."""
    _, index = np.unique(labels, return_inverse=True)
    member = np.eye(index.max() + 1)[index]
    means = columns @ (member / member.sum(0))
    result: Scores = columns - means[:, index]
    return result


def choose_metric(folds: Sequence[Validation], rng: np.random.Generator, *, new_users: bool) -> MetricSettings:
    """Choose block and shrinkage by the matching AP across devices on validation problems.

    ``new_users``: the metric is learned on one half of the users and tested on the other, and back.
    """
    updates, anchors = folds[0].problem.updates, taught_rows(folds)
    trials = [trial for fold in folds for trial in _trials(fold, rng, new_users)]
    blocks = candidate_blocks(updates, None, ROW_WISE)
    tried = [
        MetricSettings(block=block, shrinkage=shrinkage, ap=float(np.mean([_ap(gram, t, shrinkage) for t in trials])))
        for block, gram in grams(updates, anchors, blocks)
        for shrinkage in SHRINKAGES
    ]
    return max(tried, key=lambda settings: settings.ap)


def taught_rows(folds: Sequence[Validation]) -> Ints:
    """Return all rows that any validation problem learns from, ascending: the anchors of all problems."""
    return np.unique(np.concatenate([fold.problem.fit for fold in folds]))


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """Learn from ``fit`` with ``labels``, then match ``pairs`` (q, 2) of rows, the left ones anchors."""

    fit: Ints
    labels: Ints
    pairs: Ints
    same: NDArray[np.bool_]


def _trials(fold: Validation, rng: np.random.Generator, new_users: bool) -> Iterator[_Trial]:
    problem = fold.problem
    shared = rng.permutation(np.intersect1d(problem.labels, fold.answers))
    halves = (shared[::2], shared[1::2])
    new_users = new_users and len(shared) >= 6  # three in a half: two make a pair that does not belong together
    for taught, tested in itertools.permutations(halves) if new_users else ((shared, shared),):
        fit, left = np.isin(problem.labels, taught), np.isin(problem.labels, tested)
        right = np.isin(fold.answers, tested)
        pairs, same = balanced_pairs(problem.labels[left], fold.answers[right], 2000, rng)
        rows = np.stack([problem.fit[left][pairs[:, 0]], problem.ask[right][pairs[:, 1]]], axis=1)
        yield _Trial(fit=problem.fit[fit], labels=problem.labels[fit], pairs=rows, same=same)


def _ap(gram: Gram, trial: _Trial, shrinkage: float) -> float:
    from sklearn.metrics import average_precision_score

    learned = similarity(gram, trial.fit, trial.labels, shrinkage)
    return float(average_precision_score(trial.same, learned.of_pairs(trial.pairs)))


def choose_temperature(folds: Sequence[Validation], settings: MetricSettings) -> float:
    """Return the temperature with the least log-loss of "whose update is this", across devices."""
    answered = [_answered(fold, settings) for fold in folds]
    scores, columns = (np.concatenate(parts) for parts in zip(*answered, strict=True))
    return best_temperature(scores, columns)[1]


def _answered(fold: Validation, settings: MetricSettings) -> tuple[Scores, Ints]:
    """Return class similarities (q', m') and right columns (q',) of the questions whose user has a training row."""
    problem = fold.problem
    nearness, present = learn(problem.updates, problem.fit, problem.fit, problem.labels, settings).of_classes()
    known = np.isin(fold.answers, present)
    return nearness[problem.ask[known]], np.searchsorted(present, fold.answers[known])
