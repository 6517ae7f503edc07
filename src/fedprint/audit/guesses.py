"""What a reader of the released models makes of them: a score per canary, and which coins it dares to guess."""

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
"""Noise below this share of the clipping norm is as good as none."""


def log_likelihood_ratio(steps: Doubles, claimed: Sequence[SampledGaussian]) -> Doubles:
    """Return how much likelier each canary's steps (T, m) are with it than without: (m,), in nats.

    A step is the sum along the canary's direction over the clipping norm. Under the ``claimed`` event it is Gaussian
    around 1 with probability q and else around 0; without the canary around 0, where a client was exchanged around -1
    with probability q. The best test there is (Neyman and Pearson), if the claim is true.
    """
    q = np.array([event.q for event in claimed])[:, None]
    variance = np.array([event.sigma for event in claimed])[:, None] ** 2
    with np.errstate(divide="ignore"):  # q = 1: nobody stays away
        there, away = np.log(q), np.log1p(-q)
    with_it = np.logaddexp(away, there + (steps - 0.5) / variance)
    if claimed[0].adjacency == "replace-one":
        with_it -= np.logaddexp(away, there + (-steps - 0.5) / variance)
    ratio: Doubles = with_it.sum(0)
    return ratio


def as_seen(claimed: Sequence[SampledGaussian], steps: Doubles) -> tuple[SampledGaussian, ...]:
    """Return the events with the noise that steps (T, m) show, where that is less than the claim.

    By the median deviation over canaries, which the few that take part hardly move. Missing noise would otherwise hide
    behind a score that expects it.
    """
    spread = np.median(np.abs(steps - np.median(steps, axis=1, keepdims=True)), axis=1) / norm.ppf(0.75)
    least = np.maximum(spread, _LEAST)
    return tuple(replace(event, sigma=min(event.sigma, float(s))) for event, s in zip(claimed, least, strict=True))


def guessed(scores: Doubles, confidence: float) -> Signs:
    """Return a guess per canary (m,): 1 included, -1 excluded, 0 abstain; ``scores`` (m,) are log-likelihood ratios.

    Guesses go to the canaries with the clearest scores, as many as promise the best bound (at delta 0) if each is right
    with the probability that its score says. The coins have no part in it, so the choice cannot favour the bound.
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
