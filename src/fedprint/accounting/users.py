"""Privacy of a user who owns several clients: what a round reveals of all of them together, and its epsilon.

The usual epsilon protects a client. Clients are sampled independently, so a user with two clients is in a round twice,
once, or not at all, and the sum moves by up to 2 S, S, or 0. That is a mixture of Gaussians (Choquette-Choo et al.
2023, arXiv:2310.15526). Its epsilon is smaller than that of group privacy, which counts both clients in every round.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedprint.accounting.accountants import accountants_for, load_dp_accounting
from fedprint.accounting.design import Epsilon
from fedprint.accounting.events import Composition, Event, SampledGaussian, counted

PLD = "pld"
"""The accountant of a user; the others have no theorem for mixtures."""

DEVICES = 2
"""Devices of a user: one for each half of the data (papers.md, section 1)."""

FIXED_SIZE = "two devices of one user in samples of fixed size, which no accountant here can price"
CORRELATED = "two devices of one user under noise correlated between rounds, which no accountant here can price"
NOT_INSTALLED = "two devices of one user, which only the missing package dp-accounting can price"

_STEP, _MOST_STEPS = 5e-3, 10_000
"""A round's privacy losses are rounded up to multiples of a step. A step of 1e-4 takes thirty times longer and gives
18.8934 instead of 18.8936.

Where the noise is so small that a round would have more steps than ``_MOST_STEPS``, steps are longer.
"""


@dataclass(frozen=True, kw_only=True)
class UserRound:
    """A user's part in one round: device i is in the Poisson sample with probability ``rates[i]``, independently.

    Each sends a contribution of norm at most S; the noise is N(0, sigma^2 S^2) per coordinate, ``sigma`` above 0.
    The worst case is that all contributions have full length in one direction: the likelihood ratio is a sum of
    log-normal variables, which is largest in convex order where all of them rise and fall together.
    """

    rates: tuple[float, ...]
    sigma: float

    @property
    def in_sample(self) -> tuple[float, ...]:
        """Return the probabilities that none, one, ... of the devices is in the sample."""
        chances = np.ones(1)
        for rate in self.rates:
            chances = np.convolve(chances, [1 - rate, rate])
        return tuple(chances.tolist())

    @property
    def greatest_loss(self) -> float:
        """Return about the largest privacy loss of a round with all devices in it, in nats."""
        shift = len(self.rates) / self.sigma
        return shift**2 / 2 + 10 * shift


def epsilon_of_user(rounds: Mapping[UserRound, int], delta: float) -> float:
    """Return the epsilon, from above, of adding or removing a user with all devices; 0 for no rounds.

    By dp-accounting's privacy loss distributions; FedprintError where that package is missing.
    """
    if not rounds:
        return 0.0
    step = max(_STEP, max(event.greatest_loss for event in rounds) / _MOST_STEPS)
    together = load_dp_accounting().pld.privacy_loss_distribution.identity(step)
    for event, times in rounds.items():
        together = together.compose(_losses(event, step).self_compose(times))
    return float(together.get_epsilon_for_delta(delta))


@lru_cache(maxsize=64)
def _losses(event: UserRound, step: float) -> Any:
    """Return the privacy loss distribution of one round, in multiples of ``step``."""
    return load_dp_accounting().pld.privacy_loss_distribution.from_mixture_gaussian_mechanism(
        standard_deviation=event.sigma,
        sensitivities=[float(present) for present in range(len(event.in_sample))],
        sampling_probs=event.in_sample,
        value_discretization_interval=step,
    )


def of_user(device: Epsilon, rounds: Sequence[Event], not_covered: Sequence[str], bands: int = 1) -> Epsilon:
    """Return the epsilon after ``rounds`` of a user with :data:`DEVICES` devices, given the epsilon of one ``device``.

    Each device is sampled and clipped like any client. Infinite where the device's epsilon is, and where no accountant
    here can compute it: ``not_covered`` then begins with the reason.
    """
    mechanisms = counted(Composition(events=tuple(rounds)))
    user = replace(device, protects="user", accountant=PLD, not_covered=tuple(not_covered))
    if mechanisms is None:
        return replace(user, value=math.inf)
    if unpriced := CORRELATED if bands > 1 else _unpriced(mechanisms):
        return replace(user, value=math.inf, accountant="none", not_covered=(unpriced, *not_covered))
    user_rounds = {UserRound(rates=(event.q,) * DEVICES, sigma=event.sigma): n for event, n in mechanisms.items()}
    return replace(user, value=epsilon_of_user(user_rounds, device.delta))


def _unpriced(mechanisms: Collection[SampledGaussian]) -> str | None:
    """Return why no accountant here can compute a user's epsilon for these rounds, None where one can."""
    if any(event.sampling != "poisson" for event in mechanisms):
        return FIXED_SIZE
    return NOT_INSTALLED if PLD in accountants_for("poisson")[1] else None
