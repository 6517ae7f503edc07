"""Rules for the clipping norm S of a round, where it is not a constant."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Generator

from fedprint.component import Component

_LEAST = 1e-12
"""Least clipping norm: with 0 every update would be 0."""


class MedianClip(Component):
    """``median``: S is the median of the round's norms, as published (client-dp, algorithm 1, line 9).

    Devices send the server their norms, and S depends on them without any noise: what S reveals is **not covered by the
    guarantee**.
    """

    name: Literal["median"] = "median"

    def norm(self, norms: Sequence[float]) -> float:
        """Return the median of the norms of at least one update."""
        return max(statistics.median(norms), _LEAST)


class QuantileClip(Component):
    """``quantile``: S follows a quantile of the norms, estimated privately (Andrew et al. 2021, algorithm 1).

    Each device adds one bit to its update, whether its norm is at most S. The share of ones gets Gaussian noise of
    standard deviation ``count_noise`` m / m, and ``S <- S exp(-rate (share - target))``. The bit costs privacy
    (:meth:`multiplier`). The paper's defaults suit cohorts of hundreds; for 20 clients ``count_noise`` should be .2.
    """

    name: Literal["quantile"] = "quantile"
    start: float = Field(default=0.1, gt=0)
    target: float = Field(default=0.5, gt=0, lt=1)
    rate: float = Field(default=0.2, gt=0)
    count_noise: float = Field(default=0.05, gt=0)

    def multiplier(self, z: float, expected: int) -> float:
        """Return the noise multiplier of update and bit released together (theorem 1).

        A bit less one half changes their sum by 1/2 per client, so its own multiplier is twice its noise.
        """
        return 1 / math.hypot(1 / z, 1 / (2 * self.count_noise * expected))

    def share(self, norms: Sequence[float], norm: float, expected: int, rng: Generator) -> float:
        """Return the noisy share of clients whose norm is at most ``norm``, over the ``expected`` number of clients."""
        bits = sum((value <= norm) - 0.5 for value in norms)
        noise = self.count_noise * expected * float(torch.randn((), generator=rng, dtype=torch.float64))
        return (bits + noise) / expected + 0.5

    def following(self, norm: float, share: float) -> float:
        """Return the next round's norm (section 2.1, geometric update)."""
        return max(norm * math.exp(-self.rate * (share - self.target)), _LEAST)
