"""Rules for the clipping norm, schedules, and what dp-fedavg makes of them."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from fedprint.accounting.accountants import accountant_named, epsilon_of
from fedprint.accounting.events import PoissonGaussian
from fedprint.defences.clipping import MedianClip, QuantileClip
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.schedules import Constant, Linear, Step
from fedprint.rng import numpy_rng, torch_rng
from fedprint.types import FedprintError

# ---- schedules -----------------------------------------------------------------------------------------------------


def test_schedules_by_hand() -> None:
    assert [Constant().factor(t, 8) for t in (0, 7)] == [1, 1]
    assert [Linear(to=3, levels=5).factor(t, 10) for t in range(10)] == [1, 1, 1.5, 1.5, 2, 2, 2.5, 2.5, 3, 3]
    assert [Step(at=(2, 4), factors=(2, 0.5)).factor(t, 99) for t in range(6)] == [1, 1, 2, 2, 0.5, 0.5]


@given(to=st.floats(0.1, 10), levels=st.integers(2, 30), rounds=st.integers(1, 300))
def test_linear_goes_from_once_to_its_end_in_few_different_values(to: float, levels: int, rounds: int) -> None:
    factors = [Linear(to=to, levels=levels).factor(t, rounds) for t in range(rounds)]
    assert factors[0] == 1 and len(set(factors)) <= levels
    assert factors == sorted(factors, reverse=to < 1)
    if rounds >= levels:
        assert factors[-1] == pytest.approx(to)


@pytest.mark.parametrize("values", [{"at": [3, 3], "factors": [1, 2]}, {"at": [5, 2], "factors": [1, 2]},
                                    {"at": [1], "factors": [1, 2]}, {"at": [], "factors": []}])  # fmt: skip
def test_steps_that_do_not_fit_are_refused(values: dict[str, list[float]]) -> None:
    with pytest.raises(ValidationError):
        Step(**values)


def test_noise_follows_its_schedule() -> None:
    defence = DpFedAvg(clip=2, z=0.5, z_schedule=Step(at=(3,), factors=(4.0,)))
    assert [defence.multiplier(t, 9, 10) for t in (2, 3)] == [0.5, 2.0]
    assert (defence.at(3, 9, 2.0).z, defence.at(3, 9, 2.0).at(3, 9, 2.0).z) == (2.0, 2.0)
    zeros = {"w": torch.zeros(40_000, dtype=torch.float64)}
    for t, sigma in ((2, 0.5 * 2 / 5), (3, 2.0 * 2 / 5)):
        noise = defence.at(t, 9, 2.0).on_server(zeros, 5, torch_rng(0))["w"].numpy()
        assert stats.kstest(noise, "norm", args=(0, sigma)).pvalue > 1e-3
        assert stats.kstest(noise, "norm", args=(0, sigma * 1.5)).pvalue < 1e-9


# ---- the norm ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [MedianClip(), QuantileClip()])
def test_without_a_norm_nothing_is_clipped_and_nothing_noised(rule: MedianClip | QuantileClip) -> None:
    defence, update = DpFedAvg(clip=rule, z=1), {"w": torch.full((9,), 5.0)}
    assert torch.equal(defence.on_device(update, torch_rng(0))["w"], update["w"])
    with pytest.raises(FedprintError, match=f"{rule.name} has not set a clipping norm"):
        defence.on_server(update, 3, torch_rng(0))
    settled = defence.at(0, 1, 3.0)
    assert float(settled.on_device(update, torch_rng(0))["w"].norm()) == pytest.approx(3.0)


def test_the_median_of_the_norms() -> None:
    assert MedianClip().norm([5.0, 1.0, 2.0]) == 2.0
    assert MedianClip().norm([1.0, 2.0]) == 1.5
    assert 0 < MedianClip().norm([0.0, 0.0]) < 1e-9


def test_a_quantile_finds_its_place_among_norms_without_seeing_them() -> None:
    rule, rng = QuantileClip(start=0.01, target=0.7), numpy_rng(0)
    norms = np.sort(rng.lognormal(1.0, 0.5, size=500)).tolist()
    norm = rule.start
    for t in range(200):
        norm = rule.following(norm, rule.share(norms, norm, 500, torch_rng(0, t)))
    assert np.mean(np.array(norms) <= norm) == pytest.approx(0.7, abs=0.06)


def test_the_share_has_the_noise_that_is_paid_for() -> None:
    rule, norms = QuantileClip(count_noise=0.3), [1.0] * 30 + [3.0] * 10
    draws = np.array([rule.share(norms, 2.0, 40, torch_rng(0, i)) for i in range(3000)])
    assert stats.kstest(draws, "norm", args=(0.75, 0.3)).pvalue > 1e-3
    assert stats.kstest(draws, "norm", args=(0.75, 0.2)).pvalue < 1e-9


def test_an_empty_round_moves_the_norm_by_noise_alone() -> None:
    draws = [QuantileClip().share([], 1.0, 20, torch_rng(0, i)) for i in range(2000)]
    assert statistics.fmean(draws) == pytest.approx(0.5, abs=0.006)


def test_one_client_moves_the_sum_of_bits_by_one_half() -> None:
    rule = QuantileClip(count_noise=1e-12)
    before, after = (10 * rule.share([1.0] * n, 2.0, 10, torch_rng(0)) for n in (4, 5))
    assert after - before == pytest.approx(0.5)


def test_the_bit_costs_what_theorem_1_says() -> None:
    """z_delta = (z^-2 - (2 sigma_b)^-2)^-1/2 is the noise on the update that leaves z for both together."""
    rule, z, expected = QuantileClip(count_noise=0.1), 1.1, 30
    both = rule.multiplier(z, expected)
    assert both < z
    assert (both**-2 - (2 * 0.1 * expected) ** -2) ** -0.5 == pytest.approx(z)
    assert DpFedAvg(clip=rule, z=z).multiplier(0, 9, expected) == both
    assert DpFedAvg(clip=rule, z=0).multiplier(0, 9, expected) == 0
    moments = accountant_named("moments")
    cost = [epsilon_of(moments, PoissonGaussian(q=0.1, sigma=sigma), 1e-5) for sigma in (both, z)]
    assert cost[0] > cost[1]
