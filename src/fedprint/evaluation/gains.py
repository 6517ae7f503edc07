"""Paired differences between two attacks that are each trained several times: two sources of chance, one interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student_t

from fedprint.evaluation.intervals import Interval, cluster_bootstrap_interval
from fedprint.evaluation.outcomes import top_k_credit
from fedprint.evaluation.utility import mean_ap_statistic
from fedprint.types import Doubles, Ints

Statistic = Callable[[Doubles], float]
"""A number as a function of the weights (q,) of the questions."""


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


def gain_interval(
    pairs: Sequence[tuple[Statistic, Statistic]],
    user_ids: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 200,
) -> Interval:
    """Return the interval of the mean of (first - second) over seeds, for statistics in [0, 1]; within [-1, 1].

    Two half widths are added in squares: a bootstrap over users of the mean difference (the seeds held), and Student's
    t over the seeds' differences (the users held). The first holds a little of the second: rather too wide than too
    narrow. One seed alone says nothing of seeds: then only users count.
    """

    def difference(weights: Doubles) -> float:
        return float(np.mean([first(weights) - second(weights) for first, second in pairs]))

    halved = cluster_bootstrap_interval(
        lambda weights: (1 + difference(weights)) / 2, user_ids, rng, confidence=confidence, resamples=resamples
    )
    ones = np.ones(len(np.asarray(user_ids)))
    by_seed = np.array([first(ones) - second(ones) for first, second in pairs])
    seeds = seed_half_width(by_seed, confidence)
    value = float(by_seed.mean())
    below, above = (np.hypot(2 * side, seeds) for side in (halved.value - halved.lo, halved.hi - halved.value))
    return Interval(value=value, lo=max(-1.0, value - float(below)), hi=min(1.0, value + float(above)))


def seed_half_width(by_seed: Doubles, confidence: float) -> float:
    """Return half the width of Student's interval of the mean of one difference per seed (s,); 0 for one seed."""
    s = len(by_seed)
    if s < 2:
        return 0.0
    return float(student_t.ppf((1 + confidence) / 2, s - 1) * by_seed.std(ddof=1) / np.sqrt(s))
