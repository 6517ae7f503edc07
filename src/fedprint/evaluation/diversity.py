"""How the diversity of clients changes over training: V_c and U_s of the last third of the rounds over the first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import ttest_ind

from fedprint.evaluation.intervals import Interval

LEAST = 6
"""Least number of rounds: with fewer a third of them shows no spread."""


def doublings(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return log2 of the geometric mean of the last third of ``values`` over that of the first: 1 is twice as much.

    ``values`` (T,) are positive, by round. The interval is Welch's t interval of the difference of mean logs, with
    rounds as independent draws. A trend within a third widens it. But successive rounds are alike, so that several
    pooled seeds are better evidence than many rounds. None below :data:`LEAST` rounds.
    """
    if len(values) < LEAST:
        return None
    logs, third = np.log2(np.asarray(values, float)), len(values) // 3
    first, last = logs[:third], logs[-third:]
    gap = float(last.mean() - first.mean())
    if math.isclose(float(first.std() + last.std()), 0.0, abs_tol=1e-12):
        return Interval(value=gap, lo=gap, hi=gap)
    ends = ttest_ind(last, first, equal_var=False).confidence_interval(confidence)
    return Interval(value=gap, lo=float(ends.low), hi=float(ends.high))
