"""From intervals to p-values, and Holm's correction over the p-values of one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from fedprint.evaluation.intervals import Interval

ALPHA = 0.05
"""How often a table of claims may hold a false verdict."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """One-sided p-values of a number and a bound.

    ``above`` is against "at most the bound", ``below`` against "at least the bound".
    """

    above: float
    below: float


def sides(interval: Interval, bound: float, users: int, *, confidence: float = 0.95) -> Sides:
    """Return the p-values of a number beside a ``bound``, from its interval over ``users``.

    The standard error is half the interval, on the side of the bound, over the quantile that made it (Altman and Bland,
    How to obtain the P value from a confidence interval, BMJ 2011;343:d2304). Theirs is the normal quantile; here it is
    Student's with ``users - 1`` degrees of freedom, because the tail that Holm's correction reads is heavier for few
    users. At ``confidence`` the p-values and the interval decide alike. An interval of no width is exact.
    """
    distance = interval.value - bound
    half = interval.value - interval.lo if distance > 0 else interval.hi - interval.value
    if distance == 0 or not math.isfinite(half):
        return Sides(above=0.5, below=0.5)
    freedom = max(users - 1, 1)
    score = math.copysign(math.inf, distance)
    if half > 0:
        score = distance / half * float(student_t.ppf((1 + confidence) / 2, freedom))
    return Sides(above=float(student_t.sf(score, freedom)), below=float(student_t.cdf(score, freedom)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number, each in its place (Holm, Scand. J. Statist. 1979, 6:65).

    To reject those at most a (an adjusted p is at most a) makes a single false rejection with probability a or less,
    however the tests depend on one another. The smallest of m is multiplied by m, the next by m - 1, and so on.
    """
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return [float(value) for value in adjusted]
