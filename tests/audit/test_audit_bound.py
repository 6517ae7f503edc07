"""The bound on epsilon: against randomised response, against its own theorem by brute force, and at its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from fedprint.audit.bound import epsilon_lower_bound, p_value
from fedprint.evaluation.intervals import proportion_interval
from fedprint.types import FedprintError


def by_hand(epsilon: float, delta: float, m: int, r: int, v: int) -> float:
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    at_least = [sum(binom.pmf(k, r, q) for k in range(max(low, 0), r + 1)) for low in range(v + 1)]
    alpha = max([(at_least[v - i] - at_least[v]) / i for i in range(1, v + 1)], default=0.0)
    return float(min(1.0, at_least[v] + 2 * m * delta * alpha))


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 4), st.sampled_from([0.0, 1e-5, 1e-2]), st.integers(1, 25), st.integers(0, 25), st.integers(0, 25))
def test_the_p_value_is_the_theorems(epsilon: float, delta: float, m: int, r: int, v: int) -> None:
    r, v = min(m, r), min(m, r, v)
    p = p_value(epsilon, delta, canaries=m, guesses=r, correct=v)
    assert p == pytest.approx(by_hand(epsilon, delta, m, r, v), abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0])
def test_it_exceeds_the_truth_of_randomised_response_about_as_often_as_it_may(epsilon: float) -> None:
    """Here every coin is an epsilon-DP answer of its own, the worst case: the bound must be valid and not idle."""
    m, confidence = 300, 0.9
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    counts = np.arange(m + 1)
    bounds = np.array([epsilon_lower_bound(0, confidence, canaries=m, guesses=m, correct=int(v)) for v in counts])
    too_high = binom.pmf(counts, m, q)[bounds > epsilon + 1e-3].sum()
    assert 0.03 < too_high <= 0.1, "exact, over all outcomes"
    assert (binom.pmf(counts, m, q) * bounds).sum() > epsilon * 0.8 - 0.1


def test_all_right_guesses() -> None:
    for r in (20, 100, 1000):
        bound = epsilon_lower_bound(0.0, 0.95, canaries=1000, guesses=r, correct=r)
        accuracy = 0.05 ** (1 / r)
        assert bound == pytest.approx(math.log(accuracy / (1 - accuracy)), abs=1e-3)


@pytest.mark.parametrize(("r", "v"), [(50, 40), (200, 190), (300, 170)])
def test_without_delta_it_is_clopper_and_pearsons(r: int, v: int) -> None:
    lowest = proportion_interval(v, r, confidence=0.9).lo  # two-sided at .9 is one-sided at .95
    bound = epsilon_lower_bound(0.0, 0.95, canaries=400, guesses=r, correct=v)
    assert bound == pytest.approx(math.log(lowest / (1 - lowest)), abs=1e-3)


def test_a_larger_delta_or_more_confidence_bounds_less() -> None:
    counts = {"canaries": 1000, "guesses": 200, "correct": 180}
    deltas = [epsilon_lower_bound(delta, 0.95, **counts) for delta in (0.0, 1e-6, 1e-5, 1e-4)]
    assert deltas == sorted(deltas, reverse=True) and deltas[0] > deltas[-1]
    levels = [epsilon_lower_bound(1e-5, level, **counts) for level in (0.8, 0.95, 0.999)]
    assert levels[0] > levels[1] > levels[2] > 0


def test_guessing_bounds_nothing() -> None:
    assert epsilon_lower_bound(1e-5, 0.95, canaries=1000, guesses=200, correct=103) == 0
    assert epsilon_lower_bound(1e-5, 0.95, canaries=1000, guesses=0, correct=0) == 0


@pytest.mark.parametrize("counts", [(10, 11, 5), (10, 5, 6), (10, 5, -1)])
def test_counts_that_cannot_be_are_refused(counts: tuple[int, int, int]) -> None:
    m, r, v = counts
    with pytest.raises(FedprintError, match="impossible; check the counts"):
        p_value(1.0, 0.0, canaries=m, guesses=r, correct=v)
