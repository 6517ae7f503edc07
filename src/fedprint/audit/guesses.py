"""The auditor's guesses from the released models: a score per canary, and a guess for the clearest scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import beta, norm

from fedprint.accounting.events import SampledGaussian
from fedprint.types import Doubles, Ints

Signs = Ints

_LEAST = 1e-3
"""Least noise, as a share of the clipping norm, that a score assumes: with none it would be infinite."""


def log_likelihood_ratio(steps: Doubles, claimed: Sequence[SampledGaussian]) -> Doubles:
    """Return the log-likelihood ratio of each canary's steps (T, m), included over not included: (m,), in nats.

    A step is the sum along the canary's direction over the clipping norm. Under the ``claimed`` event it is Gaussian:
    around 1 with probability q and else around 0 with the canary; around 0 without it (add-remove), or around -1 with
    probability q (replace-one). If the claim is true, no test is better (Neyman and Pearson).
    """
    q = np.array([event.q for event in claimed])[:, None]
    variance = np.array([event.sigma for event in claimed])[:, None] ** 2
    with np.errstate(divide="ignore"):  # q = 1: no client stays away
        there, away = np.log(q), np.log1p(-q)
    with_it = np.logaddexp(away, there + (steps - 0.5) / variance)
    if claimed[0].adjacency == "replace-one":
        with_it -= np.logaddexp(away, there + (-steps - 0.5) / variance)
    ratio: Doubles = with_it.sum(0)
    return ratio


def with_estimated_noise(claimed: Sequence[SampledGaussian], steps: Doubles) -> tuple[SampledGaussian, ...]:
    """Return the events with the noise estimated from steps (T, m), where that is less than claimed.

    The estimate is the median deviation over canaries, which the few that take part hardly move. A score that assumes
    the claimed noise would not notice that some is missing.
    """
    spread = np.median(np.abs(steps - np.median(steps, axis=1, keepdims=True)), axis=1) / norm.ppf(0.75)
    least = np.maximum(spread, _LEAST)
    return tuple(replace(event, sigma=min(event.sigma, float(s))) for event, s in zip(claimed, least, strict=True))


def guess_coins(scores: Doubles, confidence: float) -> Signs:
    """Return a guess per canary (m,): 1 included, -1 excluded, 0 abstain; ``scores`` (m,) are log-likelihood ratios.

    The canaries with the clearest scores are guessed. Their number is the one with the best expected bound (at delta 0)
    if each guess is right with the probability that its score gives. The number does not depend on the coins, so it
    cannot favour the bound.
    """
    clearest = np.argsort(-np.abs(scores), kind="stable")
    right = np.cumsum(expit(np.abs(scores[clearest])))
    count = np.arange(1, len(scores) + 1)
    number = int(np.argmax(beta.ppf(1 - confidence, right, count - right + 1))) + 1
    out: Signs = np.zeros(len(scores), dtype=np.int64)
    chosen = clearest[:number]
    out[chosen] = np.where(scores[chosen] > 0, 1, -1)
    return out


def count_right(guesses: Signs, coins: NDArray[np.bool_]) -> int:
    """Return how many of the guesses (m,) agree with the coins (m,)."""
    return int((guesses == np.where(coins, 1, -1)).sum())
