"""What the model is still good for: test-set utility with intervals over users and the level of random scores.

Letters: n examples (or tokens), C classes, V vocabulary. ``user_ids`` (n,) names the owner of each test example. Chance
is a model with uniformly random scores, not the most frequent answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedprint.evaluation.chance import expected_ap, expected_top_k, expected_uniform_error
from fedprint.evaluation.intervals import cluster_bootstrap_interval, cluster_mean_interval
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.outcomes import top_k_credit
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, FedprintError, Ints, Measurement

IGNORED = -100
"""Target of a token that does not count."""


def accuracy(
    scores: ArrayLike, targets: ArrayLike, user_ids: ArrayLike, seed: int, *, confidence: float = 0.95
) -> Measurement:
    """Return single-label accuracy from ``scores`` (n, C) and ``targets`` (n,); ties get expected credit."""
    table = np.asarray(scores, float)
    hits = top_k_credit(table, np.asarray(targets, np.int64), 1)
    chance = float(expected_top_k(1, table.shape[1]))
    return hit_rate("accuracy", hits, user_ids, seed, chance=chance, confidence=confidence)


def top5_hits(scores: ArrayLike, targets: ArrayLike) -> Doubles:
    """Return per-token top-5 credit (n,) from ``scores`` (n, V): call it batch by batch and keep the hits only.

    NaN where the target is :data:`IGNORED`, which :func:`top5_accuracy` leaves out.
    """
    tokens, table = np.asarray(targets, np.int64).ravel(), np.asarray(scores)
    table = table.reshape(len(tokens), -1)
    kept = tokens != IGNORED
    hits = np.full(len(tokens), np.nan)
    hits[kept] = top_k_credit(table[kept], tokens[kept], 5)
    return hits


def top5_accuracy(
    hits: ArrayLike, user_ids: ArrayLike, vocabulary: int, seed: int, *, confidence: float = 0.95
) -> Measurement:
    """Return the share of tokens within the model's five best, from :func:`top5_hits` (n,); chance is 5/V."""
    credit, users = np.asarray(hits, float), np.asarray(user_ids)
    counted = ~np.isnan(credit)
    chance = float(expected_top_k(5, vocabulary))
    return hit_rate("top5_accuracy", credit[counted], users[counted], seed, chance=chance, confidence=confidence)


def hit_rate(
    metric: str, hits: ArrayLike, user_ids: ArrayLike, seed: int, *, chance: float, confidence: float = 0.95
) -> Measurement:
    """Return the mean of ``hits`` (n,) in [0, 1] under the name ``metric``, with its interval over users."""
    users = np.asarray(user_ids)
    rng = numpy_rng(seed, "interval", metric)
    interval = cluster_mean_interval(hits, users, rng, confidence=confidence)
    return measurement(metric, interval, chance, users)


def mean_absolute_error(
    predictions: ArrayLike,
    targets: ArrayLike,
    user_ids: ArrayLike,
    seed: int,
    *,
    scale: tuple[float, float] = (1.0, 5.0),
    confidence: float = 0.95,
) -> Measurement:
    """Return the mean absolute error in stars; predictions (n,) are clipped to ``scale``, where the targets (n,) lie.

    Chance predicts uniformly on ``scale``.
    """
    low, high = scale
    truth, users = np.asarray(targets, float), np.asarray(user_ids)
    chance = float(expected_uniform_error(truth, low, high).mean())
    errors = absolute_errors(predictions, truth, scale)
    rng = numpy_rng(seed, "interval", "mae")
    interval = cluster_mean_interval(errors, users, rng, confidence=confidence, bounds=(0.0, high - low))
    return measurement("mae", interval, chance, users)


def mae_gain(
    predictions: ArrayLike,
    guess: ArrayLike,
    targets: ArrayLike,
    user_ids: ArrayLike,
    seed: int,
    *,
    scale: tuple[float, float] = (1.0, 5.0),
    confidence: float = 0.95,
) -> Measurement:
    """Return how much lower the error of ``predictions`` (n,) is than that of ``guess`` (n,), in stars.

    Paired example by example, so that what is hard for both cancels: an interval above 0 excludes the guess. Positive
    is better; 0 is what the guess itself gains, the level given as chance.
    """
    errors = absolute_errors(guess, targets, scale) - absolute_errors(predictions, targets, scale)
    users, span = np.asarray(user_ids), scale[1] - scale[0]
    rng = numpy_rng(seed, "interval", "mae_gain")
    interval = cluster_mean_interval(errors, users, rng, confidence=confidence, bounds=(-span, span))
    return measurement("mae_gain_over_median", interval, 0.0, users)


def absolute_errors(predictions: ArrayLike, targets: ArrayLike, scale: tuple[float, float]) -> Doubles:
    """Return the errors (n,) of predictions (n,) that are clipped to ``scale`` (lowest, highest)."""
    errors: Doubles = np.abs(np.clip(np.asarray(predictions, float), *scale) - np.asarray(targets, float))
    return errors


def mean_ap(
    scores: ArrayLike,
    labels: ArrayLike,
    user_ids: ArrayLike,
    seed: int,
    *,
    confidence: float = 0.95,
    resamples: int = 200,
) -> Measurement:
    """Return per-class AP averaged over the classes with a positive; ``scores`` and 0/1 ``labels`` are (n, C)."""
    table, truth, users = np.asarray(scores, float), np.asarray(labels).astype(bool), np.asarray(user_ids)
    statistic = mean_ap_statistic(table, truth)
    positives = truth.sum(0)
    chance = float(expected_ap(positives[positives > 0], len(truth)).mean())
    interval = cluster_bootstrap_interval(
        statistic, users, numpy_rng(seed, "interval", "mean_ap"), confidence=confidence, resamples=resamples
    )
    return measurement("mean_ap", interval, chance, users)


def mean_ap_statistic(scores: Doubles, labels: NDArray[np.bool_]) -> Callable[[Doubles], float]:
    """Return the mean AP (scikit-learn's, ties included) as a function of example weights (n,); sorts only once.

    Classes without a positive, in the data or in a resample, do not count; NaN if none is left.
    """
    if scores.ndim != 2 or scores.shape != labels.shape or not labels.any():
        raise FedprintError(f"mean AP needs scores {scores.shape} and labels {labels.shape} (n, C) with a positive")
    classes = [_sorted_class(scores[:, c], labels[:, c]) for c in np.flatnonzero(labels.any(0))]

    def statistic(weights: Doubles) -> float:
        found = np.array([_weighted_ap(weights[order], positive, last) for order, positive, last in classes])
        drawn = found[~np.isnan(found)]
        return float(drawn.mean()) if len(drawn) else float("nan")

    return statistic


_Class = tuple[Ints, NDArray[np.bool_], Ints]


def _sorted_class(column: Doubles, positive: NDArray[np.bool_]) -> _Class:
    """Return the descending order (n,), the positives in it, and the last position of each one's tie."""
    order = np.argsort(-column, kind="stable")
    ordered = -column[order]
    return order, positive[order], np.searchsorted(ordered, ordered, side="right") - 1


def _weighted_ap(weights: Doubles, positive: NDArray[np.bool_], last: Ints) -> float:
    hits = weights * positive
    total = hits.sum()
    if total == 0:
        return float("nan")
    counted = hits > 0
    precision = np.cumsum(hits)[last[counted]] / np.cumsum(weights)[last[counted]]
    return float((hits[counted] * precision).sum() / total)
