"""A lower bound on the epsilon of local differential privacy, from how often scores tell a user's updates from others'.

Local (epsilon, delta)-differential privacy of a device says: for any two data sets x and x', any set S of updates, and
any global model, P[M(x) in S] <= e^epsilon P[M(x') in S] + delta. Let S_u be the updates whose score for user u is
above a threshold. With x the data of u and x' those of another user v of the same round, a pair of an update of u and
one of v gives P[hit] <= e^epsilon P[false alarm] + delta. The inequality is linear, so it also holds between means over
pairs, if both sides weigh the pairs alike. That is why TPR <= e^epsilon FPR + delta holds for rates pooled over users,
though each user has a set S_u of its own: TPR is the mean over users of the share of their updates with a hit, FPR the
mean of false alarms over the same updates, each beside all updates of other users of its round.

Scores come from known updates alone and thresholds are fixed beforehand, so both count as given. What is random is the
mechanism, which may draw once for all updates of a device: only senders are taken as independent. Both rates are sums
of one term per sender, with bounded, known weights. Chernoff's bound with the divergence of Bernoulli variables
(Hoeffding 1963, theorem 1) then holds for any number of senders. Rates at all thresholds are covered at once
(Bonferroni).

Letters: q questions, m users.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import rel_entr

from fedprint.types import Doubles, Ints, Scores

SHARES = (0.5, 0.9)
TIMES_CHANCE = (2.0, 5.0, 20.0)
"""Thresholds on the probability that an attack gives a user: shares, and multiples of 1 / m."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """With ``confidence``, epsilon at ``delta`` is at least ``epsilon``; so many senders can show at most ``ceiling``.

    ``tpr`` and ``fpr`` are the measured rates at the threshold that gives the bound.
    """

    epsilon: float
    ceiling: float
    delta: float
    confidence: float
    tpr: float
    fpr: float
    n_questions: int
    n_users: int


def lower_bound(scores: Scores, truth: Ints, rounds: Ints, *, delta: float, confidence: float) -> Bound | None:
    """Return the bound from log-probabilities (q, m), the right columns (q,), and rounds (q,) in which to pair.

    None where no round has questions about two users.
    """
    thresholds = np.log(sorted({*SHARES, *(min(times / scores.shape[1], 0.99) for times in TIMES_CHANCE)}))
    rates = _rates(scores, truth, rounds, thresholds)
    if rates is None:
        return None
    level = (1 - confidence) / (2 * len(thresholds))
    least = np.array([1 - upper_mean(1 - tpr, rates.users, level) for tpr in rates.tpr])
    scale = rates.heaviest * rates.users
    most = np.array([scale * upper_mean(fpr / scale, rates.users, level) for fpr in rates.fpr])
    epsilons = np.log(np.maximum(least - delta, 1e-300) / most)
    best = int(epsilons.argmax())
    top = 1 - upper_mean(0.0, rates.users, level)
    ceiling = np.log(max(top - delta, 1e-300) / (scale * upper_mean(0.0, rates.users, level)))
    return Bound(
        epsilon=max(0.0, float(epsilons[best])),
        ceiling=max(0.0, float(ceiling)),
        delta=delta,
        confidence=confidence,
        tpr=float(rates.tpr[best]),
        fpr=float(rates.fpr[best]),
        n_questions=rates.questions,
        n_users=rates.users,
    )


def upper_mean(mean: float, count: int, level: float) -> float:
    """Return an upper bound on the expected mean of ``count`` independent values in [0, 1], wrong at most at ``level``.

    The largest p >= ``mean`` with ``count`` KL(mean || p) <= log(1 / level).
    """

    def excess(p: float) -> float:
        return float(count * (rel_entr(mean, p) + rel_entr(1 - mean, 1 - p)) + np.log(level))

    top = 1 - 1e-12
    return 1.0 if mean >= top or excess(top) <= 0 else float(brentq(excess, mean, top))


@dataclass(frozen=True, kw_only=True)
class _Rates:
    """Rates (t,) at the thresholds; ``heaviest`` is the largest weight of a sender of false alarms."""

    tpr: Doubles
    fpr: Doubles
    users: int
    heaviest: float
    questions: int


def _rates(scores: Scores, truth: Ints, rounds: Ints, thresholds: Doubles) -> _Rates | None:
    groups = [rows for t in np.unique(rounds) if len(np.unique(truth[rows := np.flatnonzero(rounds == t)])) > 1]
    if not groups:
        return None
    paired = np.concatenate(groups)
    users, counts = np.unique(truth[paired], return_counts=True)
    weight = np.zeros(scores.shape[1])
    weight[users] = 1 / (len(users) * counts)
    tpr, of_sender = np.zeros(len(thresholds)), np.zeros((len(thresholds), scores.shape[1]))
    heavy = np.zeros(scores.shape[1])
    for rows in groups:
        own = truth[rows]
        table, other = scores[np.ix_(rows, own)], own[:, None] != own  # [j, i]: update j, scored as the user of i
        share = weight[own] / other.sum(0)
        np.add.at(heavy, own, other @ share)
        for i, threshold in enumerate(thresholds):
            above = table > threshold
            tpr[i] += (np.diagonal(above) * weight[own]).sum()
            np.add.at(of_sender[i], own, (above & other) @ share)
    return _Rates(
        tpr=np.minimum(tpr, 1.0),
        fpr=of_sender.sum(1),
        users=len(users),
        heaviest=float(heavy.max()),
        questions=len(paired),
    )
