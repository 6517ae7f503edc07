"""Bounds within the family of the claimed rounds: never above the truth, and near it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from fedprint.accounting.accountants import accountant_named
from fedprint.accounting.events import FixedSizeGaussian, PoissonGaussian, repeated
from fedprint.audit import family
from fedprint.audit.bound import epsilon_lower_bound
from fedprint.audit.run import Audit, Setting, bound_of_runs
from fedprint.kinds.audit.mechanism import Mechanism, audit_mechanism

DELTA = 1e-5
FULL = Mechanism(clients=100, cohort=100, rounds=4, sigma=1.2)
SAMPLED = Mechanism(clients=100, cohort=25, rounds=20, sigma=1.0)


def _audits(mechanism: Mechanism, runs: int, canaries: int = 1000) -> list[Audit]:
    return [audit_mechanism(mechanism, Setting(delta=DELTA, canaries=canaries, seed=seed)) for seed in range(runs)]


@pytest.mark.parametrize("share", [1e-4, 0.03, 0.5, 0.9])
def test_the_curve_of_one_gaussian_is_known(share: float) -> None:
    curve = family._curve(((PoissonGaussian(q=1.0, sigma=0.8), 1),), DELTA, 1.0)
    assert curve.inverse(share) == pytest.approx(norm.cdf(norm.ppf(share) - 1 / 0.8), rel=0.02, abs=1e-6)
    assert curve.best_accuracy == pytest.approx(norm.cdf(1 / 1.6), abs=1e-3)
    assert curve.epsilon == pytest.approx(
        accountant_named("prv").epsilon({PoissonGaussian(q=1.0, sigma=0.8): 1}, DELTA), abs=0.05
    )


@pytest.mark.parametrize("mechanism", [FULL, SAMPLED])
def test_bounds_are_tight_and_no_seed_refutes_the_truth(mechanism: Mechanism) -> None:
    audits = _audits(mechanism, 6)
    truth = audits[0].accounted.value
    tight = [one.tight for one in audits if one.tight is not None]
    assert len(tight) == 6
    assert max(tight) <= truth
    assert np.mean(tight) > np.mean([one.bound for one in audits]) + 0.1 * truth
    together = bound_of_runs(audits)
    assert together is not None
    assert 0.7 * truth <= together <= truth


def test_missing_noise_is_found_by_runs_together() -> None:
    less = _audits(Mechanism(clients=100, cohort=100, rounds=4, sigma=0.95), 6)
    claimed = {PoissonGaussian(q=1.0, sigma=FULL.sigma): FULL.rounds}
    bound = family.of_several_runs(claimed, DELTA, 0.95, [one.accuracy for one in less])
    accounted = accountant_named("prv").epsilon(dict.fromkeys(claimed, FULL.rounds), DELTA)
    assert bound is not None and bound > accounted
    assert max(one.bound for one in less) < accounted  # which no single run shows whatever the mechanism is


def test_it_refutes_more_than_a_bound_that_knows_no_curve() -> None:
    counts = {"canaries": 1000, "guesses": 100, "correct": 98}
    claimed = {PoissonGaussian(q=1.0, sigma=1.2): 4}
    tight = family.of_one_run(claimed, DELTA, 0.95, **counts)
    assert tight is not None and tight > epsilon_lower_bound(DELTA, 0.95, **counts) + 1


def test_coins_guessed_at_random_bound_nothing() -> None:
    claimed = {PoissonGaussian(q=1.0, sigma=1.2): 4}
    assert family.of_one_run(claimed, DELTA, 0.95, canaries=400, guesses=400, correct=201) == 0.0
    assert family.of_one_run(claimed, DELTA, 0.95, canaries=400, guesses=0, correct=0) == 0.0
    assert family.of_several_runs(claimed, DELTA, 0.95, [0.52, 0.48, 0.5, 0.49]) == 0.0


def test_without_a_known_curve_or_a_second_run_there_is_no_bound() -> None:
    fixed = {FixedSizeGaussian(q=0.2, sigma=3.0): 4}
    assert family.of_one_run(fixed, DELTA, 0.95, canaries=100, guesses=50, correct=50) is None
    assert bound_of_runs(_audits(FULL, 1, canaries=50)) is None
    assert bound_of_runs([*_audits(FULL, 1, canaries=50), *_audits(SAMPLED, 1, canaries=52)]) is None


def test_a_curve_of_repeated_rounds_is_that_of_their_composition() -> None:
    event = PoissonGaussian(q=0.25, sigma=1.0)
    curve = family._curve(((event, 20),), DELTA, 1.0)
    assert len(repeated(event, 20).events) == 20
    assert curve.epsilon == pytest.approx(accountant_named("prv").epsilon({event: 20}, DELTA), abs=0.03)
