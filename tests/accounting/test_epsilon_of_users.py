"""A user with several devices: reference values, the brute force of a mixture, and what has no price."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedprint.accounting.accountants import accountant_named, epsilon_of
from fedprint.accounting.design import measured
from fedprint.accounting.events import FixedSizeGaussian, Infinite, PoissonGaussian, repeated
from fedprint.accounting.users import FIXED_SIZE, NOT_INSTALLED, UserRound, epsilon_of_user, of_user

WRITERS = PoissonGaussian(q=255 / 1160, sigma=1.252)
"""A round of client-dp-writers, which has 54, at delta 1e-5."""


def test_the_writers_who_own_two_devices() -> None:
    device = measured(accountant_named("prv"), [WRITERS] * 54, 1e-5, ["a", "second device"])
    user = of_user(device, [WRITERS] * 54, ["a"])
    assert device.value == pytest.approx(7.98, abs=0.02) and device.protects == "device"
    assert user.value == pytest.approx(18.893, abs=0.01)
    assert user == replace(device, value=user.value, accountant="pld", protects="user", not_covered=("a",))


def test_a_second_device_that_never_comes_costs_nothing() -> None:
    event, times = PoissonGaussian(q=0.1, sigma=1.0), 100
    alone = epsilon_of_user({UserRound(rates=(0.1, 0.0), sigma=1.0): times}, 1e-5)
    assert alone == pytest.approx(epsilon_of_user({UserRound(rates=(0.1,), sigma=1.0): times}, 1e-5), abs=1e-2)
    assert alone == pytest.approx(epsilon_of(accountant_named("pld"), repeated(event, times), 1e-5), abs=1e-2)
    both = epsilon_of_user({UserRound(rates=(0.1, 0.1), sigma=1.0): times}, 1e-5)
    surely_together = epsilon_of(accountant_named("rdp"), repeated(PoissonGaussian(q=0.19, sigma=0.5), times), 1e-5)
    assert 2 * alone < both < surely_together


@pytest.mark.parametrize(("rates", "sigma"), [((0.3, 0.3), 2.0), ((0.5, 0.2), 1.5)])
def test_delta_of_one_round_is_the_integral_over_the_mixture(rates: tuple[float, float], sigma: float) -> None:
    event, delta = UserRound(rates=rates, sigma=sigma), 1e-3
    a, b = rates
    assert event.in_sample == pytest.approx([(1 - a) * (1 - b), a * (1 - b) + b * (1 - a), a * b])
    x = np.linspace(-12 * sigma, 12 * sigma + 2, 400_001)
    without = stats.norm.pdf(x, 0, sigma)
    mixed = sum(p * stats.norm.pdf(x, k, sigma) for k, p in enumerate(event.in_sample))

    def found(epsilon: float) -> float:
        pairs = ((mixed, without), (without, mixed))
        return max(float(np.trapezoid(np.clip(p - np.exp(epsilon) * q, 0, None), x)) for p, q in pairs)

    epsilon = epsilon_of_user({event: 1}, delta)
    assert found(epsilon) <= delta < found(epsilon - 0.02)


def test_directions_that_differ_are_never_worse() -> None:
    """Two devices that move the sum at a right angle: one round in the plane, against equal directions."""
    q, sigma = 0.4, 1.0
    grid = np.linspace(-7, 9, 1201)
    x, y = np.meshgrid(grid, grid)
    cell = (grid[1] - grid[0]) ** 2

    def density(*centre: float) -> np.ndarray:
        return stats.norm.pdf(x, centre[0], sigma) * stats.norm.pdf(y, centre[1], sigma)

    none, apart = density(0, 0), q * (1 - q) * (density(1, 0) + density(0, 1)) + q * q * density(1, 1)
    apart = apart + (1 - q) ** 2 * none
    epsilon = epsilon_of_user({UserRound(rates=(q, q), sigma=sigma): 1}, 1e-3)
    for upper, lower in ((apart, none), (none, apart)):
        assert float(np.clip(upper - np.exp(epsilon) * lower, 0, None).sum() * cell) < 1e-3


def test_little_noise_takes_no_memory_and_no_rounds_cost_nothing() -> None:
    assert epsilon_of_user({}, 1e-5) == 0
    assert 1e4 < epsilon_of_user({UserRound(rates=(0.25, 0.25), sigma=0.01): 5}, 1e-5) < math.inf


def test_what_nothing_prices_is_infinite_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = [FixedSizeGaussian(q=0.1, sigma=2.0)] * 3
    device = measured(accountant_named("rdp-wor"), fixed, 1e-5)
    user = of_user(device, fixed, device.not_covered)
    assert (user.value, user.accountant, user.protects) == (math.inf, "none", "user")
    assert user.not_covered == (FIXED_SIZE, "the choice of the settings")
    nothing = [Infinite(reason="devices of one role are not clipped")]
    assert of_user(measured(accountant_named("rdp"), nothing, 1e-5), nothing, ()).value == math.inf
    monkeypatch.setattr("fedprint.accounting.accountants.find_spec", lambda name: None)
    poisson = [WRITERS]
    assert of_user(measured(accountant_named("rdp"), poisson, 1e-5), poisson, ()).not_covered == (NOT_INSTALLED,)
