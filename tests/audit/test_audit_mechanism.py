"""Audits of the real aggregation: what it promises stands, and every planted bug falls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from fedprint.accounting.accountants import accountant_named, epsilon_of
from fedprint.accounting.design import sampled_gaussian
from fedprint.accounting.events import Adjacency, PoissonGaussian, repeated
from fedprint.audit.bound import epsilon_lower_bound
from fedprint.audit.canaries import WithCanaries, draw_canaries
from fedprint.audit.guesses import count_right, guess_coins, log_likelihood_ratio, with_estimated_noise
from fedprint.audit.run import Audit, Setting, audit
from fedprint.defences import on_update
from fedprint.defences.clipping import MedianClip, QuantileClip
from fedprint.defences.on_update import DpFedAvg
from fedprint.federation import cohorts
from fedprint.federation.cohorts import FederationPlan
from fedprint.params import clip, flatten, norm
from fedprint.rng import numpy_rng
from fedprint.types import ClientJob, FedprintError, LocalTraining, Params

TRAINING = LocalTraining(epochs=1, batch_size=1, lr=1.0)
NORM = 8.0
PLAN = FederationPlan(rounds=8, cohort=75, training=TRAINING, seed=3, sampling="poisson")
HONEST = DpFedAvg(clip=NORM, z=3.0)
SETTING = Setting(delta=1e-5, canaries=300)


def audited(defence: DpFedAvg = HONEST, plan: FederationPlan = PLAN, **changes: Any) -> Audit:
    initial = {"a": torch.zeros(20, 10, dtype=torch.float64), "b": torch.zeros(123, dtype=torch.float64)}
    return audit(
        devices=(),
        backend=None,
        initial=initial,
        plan=plan,
        defence=defence,
        accountant=accountant_named("rdp" if plan.sampling == "poisson" else "rdp-wor"),
        setting=replace(SETTING, **changes),
    )


# ---- what holds ----------------------------------------------------------------------------------------------------


def test_no_seed_refutes_the_correct_mechanism() -> None:
    """At confidence .95 one in twenty may; the accounted epsilon is an upper bound, so here none does."""
    audits = [audited(plan=replace(PLAN, seed=seed), seed=seed) for seed in range(5)]
    assert all(one.holds for one in audits)
    assert 0.4 < audits[0].accounted.value < 2


def test_the_bound_grows_with_the_truth() -> None:
    means = []
    for z in (4.0, 0.4):
        audits = [audited(HONEST.model_copy(update={"z": z}), seed=seed) for seed in range(2)]
        assert all(one.holds for one in audits)
        means.append(np.mean([one.bound for one in audits]))
    assert means[0] + 1 < means[1]


@pytest.mark.parametrize("rule", [MedianClip(), QuantileClip(start=2.0, count_noise=1.0)])
def test_clipping_rules_and_momentum_are_audited(rule: Any) -> None:
    defence = DpFedAvg(clip=rule, z=0.5)
    result = audited(defence, replace(PLAN, momentum=0.9))
    assert result.holds and result.bound > 0.5
    silent = result.accounted.not_covered
    assert ("the median of the norms" in silent) == isinstance(rule, MedianClip)


def test_samples_of_fixed_size_are_audited_by_exchange() -> None:
    plan = replace(PLAN, sampling="fixed")
    audits = [audited(HONEST.model_copy(update={"z": z}), plan) for z in (4.0, 0.5)]
    assert [one.accounted.adjacency for one in audits] == ["replace-one"] * 2
    assert all(one.holds for one in audits) and audits[0].bound < audits[1].bound


CORRELATED = replace(PLAN, rounds=16, cohort=30, groups=4)


def test_correlated_noise_is_audited_without_its_correlation() -> None:
    """A client meets 4 of 16 rounds, each with noise of z: as in 4 rounds of independent noise at that rate."""
    defence = DpFedAvg(clip=NORM, z=0.8, bands=4)
    audits = [audited(defence, CORRELATED, seed=seed) for seed in range(3)]
    alike = audited(DpFedAvg(clip=NORM, z=0.8), replace(PLAN, rounds=4, cohort=120))
    assert all(one.accounted.value == pytest.approx(alike.accounted.value) for one in audits)
    assert all(one.holds for one in audits)
    assert np.mean([one.bound for one in audits]) > 0.6 * alike.bound > 0


def test_the_same_audit_twice() -> None:
    first, second, other = audited(), audited(), audited(seed=1)
    assert first == second
    assert (first.correct, first.included) != (other.correct, other.included)


# ---- what falls ----------------------------------------------------------------------------------------------------


class NoiseWithoutNorm(DpFedAvg):
    """Noise of sigma instead of sigma S."""

    def on_server(self, mean: Params, cohort_size: int, rng: Generator) -> Params:
        return on_update._noisy(mean, self.z / cohort_size, rng)


class NoNoise(DpFedAvg):
    def on_server(self, mean: Params, cohort_size: int, rng: Generator) -> Params:
        return mean


class NoiseOncePerClient(DpFedAvg):
    """The mean gets the noise of the sum divided by m twice."""

    def on_server(self, mean: Params, cohort_size: int, rng: Generator) -> Params:
        return on_update._noisy(mean, self.z * NORM / cohort_size**2, rng)


class WrongWayRound(DpFedAvg):
    """``min`` where ``max`` belongs: what is short gets shorter, what is long stays."""

    def on_device(self, update: Params, rng: Generator) -> Params:
        return {name: tensor * min(1.0, norm(update) / NORM) for name, tensor in update.items()}


class ScaledUp(DpFedAvg):
    def on_device(self, update: Params, rng: Generator) -> Params:
        return {name: tensor * max(1.0, norm(update) / NORM) for name, tensor in update.items()}


class NotClipped(DpFedAvg):
    def on_device(self, update: Params, rng: Generator) -> Params:
        return update


@pytest.mark.parametrize("faulty", [NoiseWithoutNorm, NoNoise, NoiseOncePerClient, WrongWayRound, ScaledUp, NotClipped])
def test_a_broken_defence_is_caught(faulty: type[DpFedAvg]) -> None:
    result = audited(faulty(clip=NORM, z=3.0))
    assert not result.holds, (result.bound, result.accounted.value)


def test_correlated_noise_whose_clients_come_out_of_turn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    defence = DpFedAvg(clip=NORM, z=3.0, bands=4)
    assert audited(defence, CORRELATED).holds
    monkeypatch.setattr(cohorts, "_sample", lambda devices, plan, t: list(range(devices)))
    result = audited(defence, CORRELATED)
    assert not result.holds, (result.bound, result.accounted.value)


def test_correlated_noise_that_is_too_little_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    defence = DpFedAvg(clip=NORM, z=3.0, bands=4)
    weights = on_update.noise_weights
    monkeypatch.setattr(on_update, "noise_weights", lambda *given: tuple(0.1 * one for one in weights(*given)))
    result = audited(defence, CORRELATED)
    assert not result.holds, (result.bound, result.accounted.value)


def test_clipping_per_tensor_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def each(update: Params, max_norm: float) -> Mapping[str, Any]:
        return {name: clip({name: tensor}, max_norm)[name] for name, tensor in update.items()}

    initial = {f"w{i}": torch.zeros(300, dtype=torch.float64) for i in range(64)}

    def run() -> Audit:
        return audit(
            devices=(), backend=None, initial=initial, plan=replace(PLAN, cohort=50), defence=HONEST,
            accountant=accountant_named("rdp"), setting=replace(SETTING, canaries=200),
        )  # fmt: skip

    assert run().holds
    monkeypatch.setattr(on_update, "clipped", each)
    result = run()
    assert not result.holds, (result.bound, result.accounted.value)


def test_a_sampling_rate_that_is_higher_than_stated_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(PLAN, cohort=15, rounds=20)
    assert audited(plan=plan).holds
    monkeypatch.setattr(cohorts, "_sample", lambda devices, plan, t: list(range(devices)))
    result = audited(plan=plan)
    assert not result.holds, (result.bound, result.accounted.value)


def test_a_sampling_rate_four_times_as_high_as_stated_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 canaries show it in four rounds; a doubled rate is beyond so few: see the next test."""
    plan = replace(PLAN, rounds=4, cohort=500)
    defence, canaries = HONEST.model_copy(update={"z": 1.43}), 2000

    def run() -> Audit:
        return audit(
            devices=(), backend=None, initial={"w": torch.zeros(canaries, dtype=torch.float64)}, plan=plan,
            defence=defence, accountant=accountant_named("prv"), setting=replace(SETTING, canaries=canaries),
        )  # fmt: skip

    assert run().holds
    monkeypatch.setattr(cohorts, "_sample", lambda devices, plan, t: list(range(devices)))
    result = run()
    assert not result.holds, (result.bound, result.accounted.value)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_doubled_sampling_rate_is_caught_by_enough_canaries(seed: int) -> None:
    """K halved by counting users for devices: q = 1 where 1/2 is stated, 16 rounds at sigma = 4, 20,000 canaries.

    Steps are drawn as the mechanism makes them: 20,000 clients of 20,000 parameters are too much for a test. Of four
    seeds 20,000 canaries caught all (bounds 2.3 to 2.6 of an accounted 2.14), 5,000 caught one.
    """
    stated, rounds, canaries = PoissonGaussian(q=0.5, sigma=4.0), 16, 20_000
    accounted = epsilon_of(accountant_named("prv"), repeated(stated, rounds), SETTING.delta)
    bounds = []
    for q in (0.5, 1.0):
        rng = numpy_rng(seed, "doubled rate")
        coins = rng.random(canaries) < 0.5
        steps = coins * (rng.random((rounds, canaries)) < q) + stated.sigma * rng.standard_normal((rounds, canaries))
        guesses = guess_coins(
            log_likelihood_ratio(steps, with_estimated_noise([stated] * rounds, steps)), SETTING.confidence
        )
        counts = {"guesses": int(np.count_nonzero(guesses)), "correct": count_right(guesses, coins)}
        bounds.append(epsilon_lower_bound(SETTING.delta, SETTING.confidence, canaries=canaries, **counts))
    assert bounds[0] < accounted < bounds[1]


def test_without_noise_nothing_is_promised() -> None:
    with pytest.raises(FedprintError, match="epsilon is infinite \\(no noise\\)"):
        audited(HONEST.model_copy(update={"z": 0.0}))


# ---- parts ---------------------------------------------------------------------------------------------------------


def test_canaries_are_orthogonal_and_their_coins_fair() -> None:
    canaries = draw_canaries(30, 100, seed=1)
    directions = torch.stack([canaries.direction(i) for i in range(30)])
    assert torch.allclose(directions @ directions.T, torch.eye(30, dtype=torch.float64))
    vector = torch.randn(100, dtype=torch.float64)
    assert canaries.components(vector) == pytest.approx((directions @ vector).numpy())
    share = np.mean([draw_canaries(100, 100, seed=seed).included.mean() for seed in range(50)])
    assert abs(share - 0.5) < 5 * 0.5 / 5000**0.5
    assert not np.array_equal(draw_canaries(30, 100, seed=2).included, canaries.included)
    with pytest.raises(FedprintError, match="101 canaries for 100 parameters"):
        draw_canaries(101, 100, seed=1)


@pytest.mark.parametrize(("adjacency", "absent"), [("add-remove", 0.0), ("replace-one", -3.0)])
def test_what_canaries_send(adjacency: Adjacency, absent: float) -> None:
    canaries = draw_canaries(6, 20, seed=0)
    params = {"a": torch.zeros(4, 3), "b": torch.zeros(8)}
    backend = WithCanaries(canaries=canaries, inner=None, norm=3.0, adjacency=adjacency)
    jobs = [ClientJob(device_id=d.device_id, examples=d.examples, seed=0) for d in canaries.devices()]
    for i, result in enumerate(backend.run(jobs, params, TRAINING)):
        sent = canaries.components(flatten(result.update))
        expected = np.zeros(6)
        expected[i] = 3.0 if canaries.included[i] else absent
        assert sent == pytest.approx(expected, abs=1e-6) and list(result.update) == ["a", "b"]


def test_the_likelihood_ratio_by_hand() -> None:
    steps = np.array([[0.3, 1.4], [-0.2, 0.9]])
    claimed = [sampled_gaussian("poisson", 0.2, 1.5), sampled_gaussian("poisson", 1.0, 0.7)]

    def density(x: float, centre: float, sigma: float) -> float:
        return float(np.exp(-((x - centre) ** 2) / (2 * sigma**2)))

    for i in range(2):
        expected = 0.0
        for t, event in enumerate(claimed):
            x = steps[t, i]
            there, away = density(x, 1, event.sigma), density(x, 0, event.sigma)
            expected += np.log((event.q * there + (1 - event.q) * away) / away)
        assert log_likelihood_ratio(steps, claimed)[i] == pytest.approx(expected)


def test_noise_is_taken_as_it_looks_where_it_is_less_than_claimed() -> None:
    steps = np.random.default_rng(0).normal(size=(2, 4000)) * np.array([[0.5], [3.0]])
    steps[:, :400] += 5.0  # those who take part
    first, second = with_estimated_noise([sampled_gaussian("poisson", 0.2, 2.0)] * 2, steps)
    assert first.sigma == pytest.approx(0.5, rel=0.2) and second.sigma == 2.0 and first.q == 0.2


def test_clear_scores_are_guessed_and_the_rest_is_left_alone() -> None:
    scores = np.array([9.0, -8.0, 0.1, 7.0, -0.2, -9.0, 8.0] + [0.05] * 40)
    guesses = guess_coins(scores, 0.95)
    assert guesses.tolist() == [1, -1, 0, 1, 0, -1, 1] + [0] * 40
    coins = np.array([True, True, True, True, True, False, False] + [True] * 40)
    assert count_right(guesses, coins) == 3


def test_scores_that_mean_what_they_say_bound_what_is_true() -> None:
    """Canaries whose likelihood ratio is exactly e^epsilon or its inverse: randomised response, seen through scores."""
    rng, epsilon = np.random.default_rng(0), 1.5
    coins = rng.random(2000) < 0.5
    honest = rng.random(2000) < np.exp(epsilon) / (1 + np.exp(epsilon))
    guesses = guess_coins(np.where(coins == honest, epsilon, -epsilon), 0.95)
    bound = epsilon_lower_bound(
        0.0, 0.95, canaries=2000, guesses=int(np.count_nonzero(guesses)), correct=count_right(guesses, coins)
    )
    assert 1.2 < bound <= 1.6
