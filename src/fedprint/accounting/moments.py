"""The moments accountant of 2016/17 (Abadi et al. 2016, theorem 2), as the code released with it computed it.

It is kept because client-dp's published budgets were computed with it. Its integer orders and its conversion to epsilon
make it looser than later accountants: its epsilon is never below theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import gammaln, logsumexp

from fedprint.accounting.events import SampledGaussian, Sampling

ORDERS = range(1, 33)
"""The orders lambda of the released code."""


def log_moment(q: float, sigma: float, order: int) -> float:
    """Return alpha(lambda) = log E[(mixture / N(0, sigma^2))^lambda] of a Poisson-sampled Gaussian.

    The expectation is over the mixture ``(1 - q) N(0, sigma^2) + q N(1, sigma^2)``, expanded binomially as in the
    released code (Abadi et al. 2016, section 3.2, E_1).
    """
    n = order + 1
    if q == 1:
        return n * order / (2 * sigma**2)
    k = np.arange(n + 1)
    chosen = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    weights = chosen + k * math.log(q) + (n - k) * math.log1p(-q)
    return float(logsumexp(weights + k * (k - 1) / (2 * sigma**2)))


def log_moments(mechanisms: Mapping[SampledGaussian, int]) -> list[float]:
    """Return the log moment of a whole composition at each of :data:`ORDERS` (theorem 2.1: they add up)."""
    return [
        sum(times * log_moment(event.q, event.sigma, order) for event, times in mechanisms.items()) for order in ORDERS
    ]


class Moments:
    """``moments``: the accountant that client-dp used; Poisson sampling, add/remove."""

    name = "moments"
    samplings: tuple[Sampling, ...] = ("poisson",)

    def epsilon(self, mechanisms: Mapping[SampledGaussian, int], delta: float) -> float:
        """Return ``min over lambda of (alpha(lambda) - log delta) / lambda`` (theorem 2.2)."""
        by_order = zip(ORDERS, log_moments(mechanisms), strict=True)
        return min((alpha - math.log(delta)) / order for order, alpha in by_order)
