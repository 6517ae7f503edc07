"""Metrics as functions of the weights of questions: a bootstrap calls them once per resample and sorts only once.

Letters: n examples or q questions, m options, C classes. A weight says how often an example is in the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedprint.evaluation.outcomes import top_k_credit
from fedprint.types import Doubles, FedprintError, Ints

Statistic = Callable[[Doubles], float]
"""A number as a function of the weights (n,) of the examples."""


def mean_of(statistics: Sequence[Statistic]) -> Statistic:
    """Return the mean of several statistics."""
    return lambda weights: float(np.mean([statistic(weights) for statistic in statistics]))


def top1_statistic(scores: Doubles, columns: Ints) -> Statistic:
    """Return the share of questions whose best-scored option (of (q, m)) is ``columns`` (q,)."""
    hits = top_k_credit(scores, columns, 1)
    return lambda weights: float((weights * hits).sum() / weights.sum())


def ap_statistic(scores: Doubles, columns: Ints) -> Statistic:
    """Return the AP per option (q, m), averaged over those that are an answer."""
    return mean_ap_statistic(scores, np.eye(scores.shape[1], dtype=bool)[columns])


def mean_ap_statistic(scores: Doubles, labels: NDArray[np.bool_]) -> Statistic:
    """Return the mean AP over classes (scikit-learn's, ties included) of ``scores`` and ``labels`` (n, C).

    Classes without a positive, in the data or in a resample, do not count; NaN if none is left.
    """
    if scores.ndim != 2 or scores.shape != labels.shape or not labels.any():
        raise FedprintError(f"mean AP needs scores {scores.shape} and labels {labels.shape} (n, C) with a positive")
    classes = [_sorted_class(scores[:, c], labels[:, c]) for c in np.flatnonzero(labels.any(0))]

    def statistic(weights: Doubles) -> float:
        aps = np.array([_weighted_ap(weights[order], positive, last) for order, positive, last in classes])
        drawn = aps[~np.isnan(aps)]
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


def weighted_auroc(scores: Doubles, positive: NDArray[np.bool_]) -> Statistic:
    """Return the area under the ROC curve (ties count half) of ``scores`` (n,); NaN without both classes."""
    values, index = np.unique(scores, return_inverse=True)

    def statistic(weights: Doubles) -> float:
        p = np.bincount(index, weights=weights * positive, minlength=len(values))
        n = np.bincount(index, weights=weights * ~positive, minlength=len(values))
        below = np.cumsum(n) - n
        total = p.sum() * n.sum()
        return float((p * (below + n / 2)).sum() / total) if total else float("nan")

    return statistic


def weighted_tpr(scores: Doubles, positive: NDArray[np.bool_], most: float) -> Statistic:
    """Return the true-positive rate at a false-positive rate of at most ``most``; NaN without both classes.

    All scores above a threshold are called positive: the lowest threshold that keeps to ``most``. Equal scores are
    called together.
    """
    values, index = np.unique(scores, return_inverse=True)

    def statistic(weights: Doubles) -> float:
        p = np.bincount(index, weights=weights * positive, minlength=len(values))[::-1]
        n = np.bincount(index, weights=weights * ~positive, minlength=len(values))[::-1]
        if not (p.sum() and n.sum()):
            return float("nan")
        allowed = np.cumsum(n) <= most * n.sum() * (1 + 1e-9)
        return float(p[allowed].sum() / p.sum())

    return statistic
