"""Designing a private federation: the epsilon of given rounds, the rounds or the noise for a given epsilon."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.optimize import brentq

from fedprint.accounting.accountants import Accountant, epsilon_of
from fedprint.accounting.events import (
    Adjacency,
    Composition,
    Event,
    FixedSizeGaussian,
    PoissonGaussian,
    SampledGaussian,
    Sampling,
    counted,
    repeated,
)
from fedprint.types import FedprintError

MOST_ROUNDS = 100_000
"""Where the search for a number of rounds ends."""

TUNING = "the choice of the settings"
"""Never covered: settings are chosen by runs whose privacy loss is not counted."""


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """An epsilon with everything that its guarantee refers to.

    ``value`` may be infinite; ``sampling`` and ``adjacency`` are None where no mechanism ran. ``not_covered`` names
    what the guarantee does not cover. ``protects`` is what is added, removed or exchanged: a device (a client), or a
    user with all devices (accounting/users.py).
    """

    value: float
    delta: float
    sampling: Sampling | None
    adjacency: Adjacency | None
    accountant: str
    rounds: int
    not_covered: tuple[str, ...] = (TUNING,)
    protects: Literal["device", "user"] = "device"


def measured(
    accountant: Accountant, rounds: Sequence[Event], delta: float, not_covered: Sequence[str] = (), bands: int = 1
) -> Epsilon:
    """Return the epsilon of these rounds at ``delta``; of every ``bands``-th of them where a device meets no other."""
    whole = Composition(events=tuple(rounds[::bands]))
    kinds = {(event.sampling, event.adjacency) for event in counted(whole) or ()}
    sampling, adjacency = kinds.pop() if len(kinds) == 1 else (None, None)
    return Epsilon(
        value=epsilon_of(accountant, whole, delta),
        delta=delta,
        sampling=sampling,
        adjacency=adjacency,
        accountant=accountant.name,
        rounds=len(rounds),
        not_covered=(*not_covered, TUNING),
    )


def sampled_gaussian(sampling: Sampling, q: float, sigma: float) -> SampledGaussian:
    """Return one round's event: noise N(0, sigma^2 S^2) on the sum over a sample of the share ``q``."""
    kind = PoissonGaussian if sampling == "poisson" else FixedSizeGaussian
    return kind(q=q, sigma=sigma)


def rounds_within(accountant: Accountant, rounds: Sequence[Event], epsilon: float, delta: float, bands: int = 1) -> int:
    """Return how many of the planned ``rounds``, from the first on, stay within (epsilon, delta)."""
    return _most(lambda t: measured(accountant, rounds[:t], delta, bands=bands).value, epsilon, len(rounds))


def rounds_for(accountant: Accountant, event: Event, epsilon: float, delta: float) -> int:
    """Return how often ``event`` may happen within (epsilon, delta); at most :data:`MOST_ROUNDS`."""
    return _most(lambda t: epsilon_of(accountant, repeated(event, t), delta), epsilon, MOST_ROUNDS)


def sigma_for(
    accountant: Accountant, make: Callable[[float], SampledGaussian], rounds: int, epsilon: float, delta: float
) -> float:
    """Return the least sigma, to 1e-4 and rounded up, at which ``rounds`` of ``make(sigma)`` cost at most epsilon.

    Raises FedprintError when even a sigma of 1000 costs more.
    """

    def excess(sigma: float) -> float:
        return epsilon_of(accountant, repeated(make(sigma), rounds), delta) / epsilon - 1

    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > 1000:
            raise FedprintError(
                f"no sigma up to 1000 keeps {rounds} rounds within epsilon {epsilon} at delta {delta}; raise "
                "epsilon or sample fewer clients"
            )
    low = high / 2
    while excess(low) <= 0:
        low, high = low / 2, low
    sigma = math.ceil(float(brentq(excess, low, high, xtol=2e-5)) * 1e4) / 1e4
    return sigma if excess(sigma) <= 0 else sigma + 1e-4


def _most(cost: Callable[[int], float], budget: float, limit: int) -> int:
    """Return the greatest t in 0 ... ``limit`` with ``cost(t) <= budget``; ``cost`` never falls.

    Steps of four times find a bracket. An epsilon is nearly a power of the number of rounds, so that a guess then lies
    on the power law through both ends. Every third step halves the bracket, whatever the law says.
    """
    if limit < 1 or (below := cost(1)) > budget:
        return 0
    low, high = 1, min(4, limit)
    while (above := cost(high)) <= budget:
        if high == limit:
            return limit
        low, below, high = high, above, min(4 * high, limit)
    steps = itertools.count(1)
    while high - low > 1:
        guess = (low + high) // 2
        if next(steps) % 3 and 0 < below < above < math.inf:
            guess = int(low * (high / low) ** (math.log(budget / below) / math.log(above / below)))
            guess = min(max(guess, low + 1), high - 1)
        found = cost(guess)
        if found <= budget:
            low, below = guess, found
        else:
            high, above = guess, found
    return low
