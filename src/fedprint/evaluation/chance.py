"""What random scores would achieve on the same questions (papers.md 2.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma

from fedprint.types import Doubles, FedprintError


def expected_ap(positives: ArrayLike, total: ArrayLike) -> Doubles:
    """Return the exact expected average precision of a uniformly random, tie-free order.

    ``((n-1)/(N-1) * (N - H_N) + H_N) / N`` with n = ``positives`` among N = ``total`` (papers.md 2.4); it exceeds the
    prevalence n/N, is 1 for n = N and H_N/N for n = 1. Both arguments broadcast, so one call serves all users.

    Raises:
        FedprintError: unless 1 <= n <= N everywhere.
    """
    n, big_n = np.broadcast_arrays(np.asarray(positives, float), np.asarray(total, float))
    if np.any(n < 1) or np.any(n > big_n):
        raise FedprintError("expected_ap needs 1 <= positives <= total; leave users without questions out")
    harmonic = digamma(big_n + 1) + np.euler_gamma
    result: Doubles = ((n - 1) / np.maximum(big_n - 1, 1) * (big_n - harmonic) + harmonic) / big_n
    return result


def expected_top_k(k: int, options: ArrayLike) -> Doubles:
    """Return the expected top-k accuracy of random scores, ``min(k, m) / m`` for m = ``options`` (broadcasts)."""
    m = np.asarray(options, float)
    if k < 1 or np.any(m < 1):
        raise FedprintError(f"top-k needs k >= 1 and at least one option, got k={k}")
    result: Doubles = np.minimum(k, m) / m
    return result


def expected_uniform_error(targets: ArrayLike, low: float, high: float) -> Doubles:
    """Return E|X - y| for X uniform in [``low``, ``high``] and every target y inside it (n,): chance for stars."""
    y = np.asarray(targets, float)
    if not low < high or np.any(y < low) or np.any(y > high):
        raise FedprintError(f"targets must lie in [{low}, {high}] with low < high")
    result: Doubles = ((y - low) ** 2 + (high - y) ** 2) / (2 * (high - low))
    return result
