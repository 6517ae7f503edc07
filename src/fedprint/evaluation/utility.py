"""The utility of the model on the test set, with intervals over users and the level of random scores.

Letters: n examples (or tokens), C classes, V vocabulary. ``user_ids`` (n,) are the owners of the test examples. Chance
is a model with uniformly random scores, not the most frequent answer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.chance import expected_ap, expected_top_k, expected_uniform_error
from fedprint.evaluation.intervals import Bounds, cluster_bootstrap_interval, cluster_mean_interval
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.statistics import mean_ap_statistic
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, Measurement


def top5_accuracy(
    hits: ArrayLike, user_ids: ArrayLike, vocabulary: int, seed: int, *, confidence: float = 0.95
) -> Measurement:
    """Return the share of tokens within the model's five best; chance is 5/V.

    ``hits`` (n,) are the expected hits of :func:`~fedprint.evaluation.outcomes.top_k_credit`, NaN for a token that does
    not count.
    """
    credit, users = np.asarray(hits, float), np.asarray(user_ids)
    counted = ~np.isnan(credit)
    chance = float(expected_top_k(5, vocabulary))
    return hit_rate("top5_accuracy", credit[counted], users[counted], seed, chance=chance, confidence=confidence)


def hit_rate(
    metric: str, hits: ArrayLike, user_ids: ArrayLike, seed: int, *, chance: float, confidence: float = 0.95
) -> Measurement:
    """Return the mean of ``hits`` (n,) in [0, 1] under the name ``metric``, with its interval over users."""
    rng = numpy_rng(seed, "interval", metric)
    return _mean(metric, hits, user_ids, rng, chance, confidence, (0.0, 1.0))


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
    chance = float(expected_uniform_error(targets, low, high).mean())
    errors, rng = absolute_errors(predictions, targets, scale), numpy_rng(seed, "interval", "mae")
    return _mean("mae", errors, user_ids, rng, chance, confidence, (0.0, high - low))


def mae_gain(
    predictions: ArrayLike, guess: ArrayLike, targets: ArrayLike, user_ids: ArrayLike, seed: int,
    *, scale: tuple[float, float] = (1.0, 5.0), confidence: float = 0.95,
) -> Measurement:  # fmt: skip
    """Return how much lower the error of ``predictions`` (n,) is than that of ``guess`` (n,), in stars.

    Paired example by example, so that what is hard for both cancels: an interval above 0 excludes the guess. Positive
    is better. The guess itself gains 0, which is given as chance.
    """
    gains = absolute_errors(guess, targets, scale) - absolute_errors(predictions, targets, scale)
    span, rng = scale[1] - scale[0], numpy_rng(seed, "interval", "mae_gain")
    return _mean("mae_gain_over_median", gains, user_ids, rng, 0.0, confidence, (-span, span))


def _mean(
    metric: str,
    values: ArrayLike,
    user_ids: ArrayLike,
    rng: np.random.Generator,
    chance: float,
    confidence: float,
    bounds: Bounds,
) -> Measurement:
    """Return the mean of ``values`` (n,) within ``bounds``, with its interval over users."""
    interval = cluster_mean_interval(values, user_ids, rng, confidence=confidence, bounds=bounds)
    return measurement(metric, interval, chance, user_ids)


def absolute_errors(predictions: ArrayLike, targets: ArrayLike, scale: tuple[float, float]) -> Doubles:
    """Return the errors (n,) of predictions (n,) that are clipped to ``scale`` (lowest, highest)."""
    errors: Doubles = np.abs(np.clip(np.asarray(predictions, float), *scale) - np.asarray(targets, float))
    return errors


def mean_ap(
    scores: ArrayLike, labels: ArrayLike, user_ids: ArrayLike, seed: int, *, confidence: float = 0.95
) -> Measurement:
    """Return per-class AP averaged over the classes with a positive; ``scores`` and 0/1 ``labels`` are (n, C)."""
    table, truth, users = np.asarray(scores, float), np.asarray(labels).astype(bool), np.asarray(user_ids)
    statistic = mean_ap_statistic(table, truth)
    positives = truth.sum(0)
    chance = float(expected_ap(positives[positives > 0], len(truth)).mean())
    rng = numpy_rng(seed, "interval", "mean_ap")
    interval = cluster_bootstrap_interval(statistic, users, rng, confidence=confidence)
    return measurement("mean_ap", interval, chance, users)
