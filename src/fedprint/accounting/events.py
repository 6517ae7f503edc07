"""What a round of training reveals, as frozen values from which an accountant computes epsilon.

An event says what was done, not what epsilon it has. An unknown event is an error. A missing event counts as
infinite epsilon.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedprint.types import FedprintError

Sampling = Literal["poisson", "fixed"]
Adjacency = Literal["add-remove", "replace-one"]


@dataclass(frozen=True, kw_only=True)
class _SampledGaussian:
    q: float
    sigma: float

    def __post_init__(self) -> None:
        """Refuse a rate outside (0, 1] and noise that is negative or not finite."""
        if not 0 < self.q <= 1:
            raise FedprintError(f"q={self.q} is no sampling rate; choose more than 0 and at most 1")
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise FedprintError(f"sigma={self.sigma} is no noise multiplier; choose 0 or more")


class PoissonGaussian(_SampledGaussian):
    """A sum of contributions of norm at most S over a Poisson sample, plus N(0, sigma^2 S^2) per coordinate.

    Every client is in the sample with probability ``q``, independently of all others, and the sample stays secret.
    Adding or removing one client moves the sum by S at most, so ``sigma`` is the noise multiplier.
    """

    sampling: ClassVar[Sampling] = "poisson"
    adjacency: ClassVar[Adjacency] = "add-remove"

    @property
    def noise_multiplier(self) -> float:
        """Noise over the sensitivity of the sum under this adjacency."""
        return self.sigma


class FixedSizeGaussian(_SampledGaussian):
    """The same sum over a sample of fixed size m = q K without replacement, plus N(0, sigma^2 S^2) per coordinate.

    Exchanging one client's data for any other moves the sum by 2 S at most: the noise multiplier is ``sigma / 2``.
    (Accountants of subsampling without replacement take noise over sensitivity; a sigma of 1.70 there is 3.40 here.)
    """

    sampling: ClassVar[Sampling] = "fixed"
    adjacency: ClassVar[Adjacency] = "replace-one"

    @property
    def noise_multiplier(self) -> float:
        """Noise over the sensitivity of the sum under this adjacency."""
        return self.sigma / 2


@dataclass(frozen=True, kw_only=True)
class Infinite:
    """Something without any guarantee; ``reason`` says what."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Several events one after another on the same clients; each may depend on the results of those before it."""

    events: tuple[Event, ...]


SampledGaussian = PoissonGaussian | FixedSizeGaussian
Event = PoissonGaussian | FixedSizeGaussian | Infinite | Composition


def repeated(event: Event, times: int) -> Composition:
    """Return the composition of ``times`` equal events."""
    return Composition(events=(event,) * times)


def counted(event: Event | None) -> Mapping[SampledGaussian, int] | None:
    """Return how often each mechanism runs, or None where nothing bounds the loss: no event, Infinite, or no noise.

    Raises FedprintError for a value that is no event, and for mechanisms of different adjacency: their epsilons are
    statements about different neighbours and do not compose.
    """
    if event is None:
        return None
    counts: Counter[SampledGaussian] = Counter()
    bounded = _collect(event, counts)
    adjacencies = sorted({mechanism.adjacency for mechanism in counts})
    if len(adjacencies) > 1:
        raise FedprintError(f"events of adjacency {' and '.join(adjacencies)} do not compose; use one kind of sampling")
    return counts if bounded else None


def _collect(event: object, counts: Counter[SampledGaussian]) -> bool:
    """Add the mechanisms of ``event`` to ``counts``; return False where a part of it has no bound."""
    if isinstance(event, Composition):
        bounded = [_collect(part, counts) for part in event.events]  # a list: every part is checked
        return all(bounded)
    if isinstance(event, PoissonGaussian | FixedSizeGaussian):
        counts[event] += 1
        return event.sigma > 0
    if isinstance(event, Infinite):
        return False
    raise FedprintError(f"{event!r} is no privacy event; use one of fedprint.accounting.events")
