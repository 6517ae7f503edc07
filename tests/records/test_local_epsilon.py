"""The lower bound on epsilon holds for a mechanism whose epsilon is known, and is not idle."""

from __future__ import annotations

import numpy as np
import pytest

from fedprint.records.epsilon import lower_bound, upper_mean


def randomised_response(epsilon: float, users: int, each: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores, truth and rounds: each update names its user with the probability that epsilon allows."""
    rng = np.random.default_rng(seed)
    truth, rounds = np.tile(np.arange(users), each), np.repeat(np.arange(each), users)
    kept = rng.random(len(truth)) < np.exp(epsilon) / (np.exp(epsilon) + users - 1)
    other = (truth + rng.integers(1, users, len(truth))) % users
    probability = np.full((len(truth), users), 0.05 / (users - 1))
    probability[np.arange(len(truth)), np.where(kept, truth, other)] = 0.95
    return np.log(probability), truth, rounds


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_the_bound_is_below_the_true_epsilon(epsilon: float) -> None:
    cases = [randomised_response(epsilon, 40, 5, seed) for seed in range(60)]
    bounds = [lower_bound(*case, delta=0.0, confidence=0.95) for case in cases]
    assert sum(bound is None or bound.epsilon > epsilon for bound in bounds) <= 3


def test_the_bound_rises_with_the_leak_up_to_its_ceiling() -> None:
    found = [lower_bound(*randomised_response(e, 100, 5, 0), delta=1e-5, confidence=0.95) for e in (1.0, 5.0, 50.0)]
    low, middle, high = (bound.epsilon for bound in found if bound is not None)
    assert low < middle < high
    assert found[2] is not None and high == pytest.approx(found[2].ceiling) and high > 2


def test_updates_of_one_sender_count_once() -> None:
    scores, truth, rounds = randomised_response(50.0, 20, 1, 0)
    once = lower_bound(scores, truth, rounds, delta=0.0, confidence=0.95)
    copies = np.tile(scores, (30, 1)), np.tile(truth, 30), np.repeat(np.arange(30), 20)
    often = lower_bound(*copies, delta=0.0, confidence=0.95)
    assert once is not None and often is not None and often.epsilon == pytest.approx(once.epsilon)


def test_without_two_users_in_a_round_there_is_nothing_to_compare() -> None:
    scores, truth, _ = randomised_response(1.0, 5, 1, 0)
    assert lower_bound(scores, truth, np.arange(5), delta=0.0, confidence=0.95) is None


def test_the_bound_on_a_mean_covers_at_its_level() -> None:
    rng = np.random.default_rng(0)
    for p in (0.02, 0.5, 0.95):
        means = rng.binomial(30, p, size=2000) / 30
        assert np.mean([upper_mean(mean, 30, 0.05) < p for mean in means]) <= 0.05
    assert upper_mean(0.0, 30, 0.05) == pytest.approx(1 - 0.05 ** (1 / 30), rel=1e-6)
