"""Paired differences between two attacks that are each trained several times: an interval over users and seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.intervals import Interval, cluster_bootstrap_interval, student_half_width
from fedprint.evaluation.statistics import Statistic
from fedprint.types import Doubles


def gain_interval(
    pairs: Sequence[tuple[Statistic, Statistic]],
    user_ids: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 200,
) -> Interval:
    """Return the interval of the mean of (first - second) over seeds, for statistics in [0, 1]; within [-1, 1].

    Two half widths are added in squares: a bootstrap over users of the mean difference (with the seeds fixed), and
    Student's t over the seeds' differences (with the users fixed). The first contains a little of the second, so that
    the interval is too wide rather than too narrow. With a single seed only users count.
    """

    def difference(weights: Doubles) -> float:
        return float(np.mean([first(weights) - second(weights) for first, second in pairs]))

    halved = cluster_bootstrap_interval(
        lambda weights: (1 + difference(weights)) / 2, user_ids, rng, confidence=confidence, resamples=resamples
    )
    ones = np.ones(len(np.asarray(user_ids)))
    by_seed = np.array([first(ones) - second(ones) for first, second in pairs])
    seeds = student_half_width(by_seed, confidence)
    value = float(by_seed.mean())
    below, above = (np.hypot(2 * side, seeds) for side in (halved.value - halved.lo, halved.hi - halved.value))
    return Interval(value=value, lo=max(-1.0, value - float(below)), hi=min(1.0, value + float(above)))
