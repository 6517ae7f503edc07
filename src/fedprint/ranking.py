"""Average precision of many rankings at once, for shadow validation and for the evaluation of attacks.

Letters: q questions, m options (columns).
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from fedprint.types import Doubles, Ints

_PAIRS = 1024
"""Up to so many questions all pairs are compared: faster than ranks for hundreds, slower from some thousand on."""


def average_precision(scores: Doubles, truth: Ints) -> Doubles:
    """Return the AP of every option (m,): its column over all q questions, positives where it is the truth.

    It is scikit-learn's ``average_precision_score``, ties included: tied questions share the last rank of their tie. It
    is NaN for an option that is never the answer. The cost is O(m q log q), or O(q q) for few questions.
    """
    if len(truth) <= _PAIRS:
        pairs = scores[:, truth]
        better = pairs >= np.diagonal(pairs)
        precision = (better & (truth[:, None] == truth)).sum(0) / better.sum(0)
    else:
        at_least = questions_at_least(scores)[np.arange(len(truth)), truth]
        precision = positives_at_least(at_least[:, None], truth)[:, 0] / at_least
    counts = np.bincount(truth, minlength=scores.shape[1])
    sums = np.bincount(truth, weights=precision, minlength=scores.shape[1])
    ap: Doubles = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return ap


def cross_average_precision(scores: Doubles, truth: Ints) -> Doubles:
    """Return A (m, m): A[c, u] = AP of column c when the positives are the questions whose truth is u.

    The diagonal is :func:`average_precision`; NaN columns for users without questions.
    """
    at_least = questions_at_least(scores)
    precision = positives_at_least(at_least, truth) / at_least
    member = np.arange(scores.shape[1])[:, None] == truth[None, :]
    counts = member.sum(1).astype(float)
    counts[counts == 0] = np.nan
    result: Doubles = (member.astype(float) @ precision / counts[:, None]).T
    return result


def questions_at_least(scores: Doubles) -> Ints:
    """Return (q, m): how many questions score at least as high as this one in its column."""
    ranks: Ints = rankdata(-scores, method="max", axis=0).astype(np.int64)
    return ranks


def positives_at_least(at_least: Ints, truth: Ints) -> Ints:
    """Return (q, c): the same count among the questions with the same truth, from the ranks ``at_least`` (q, c)."""
    keys = truth[:, None] * (len(truth) + 1) + at_least
    before = np.searchsorted(np.sort(truth), truth, side="left")
    ranks: Ints = rankdata(keys, method="max", axis=0).astype(np.int64) - before[:, None]
    return ranks
