"""P-values of intervals, and Holm's correction: between none and Bonferroni's, and never out of order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from fedprint.evaluation.intervals import Interval, student_half_width
from fedprint.evaluation.significance import holm, sides

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_holm_multiplies_by_the_number_of_tests_that_are_left() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02]), "Holm 1979, by hand"
    assert holm([]) == []


@given(P_VALUES)
def test_holm_lies_between_no_correction_and_bonferroni(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(one <= other <= min(1.0, len(p) * one) + 1e-12 for one, other in zip(p, adjusted, strict=True))
    assert min(adjusted) == pytest.approx(min(1.0, len(p) * min(p)))


@given(P_VALUES)
def test_holm_keeps_the_order_and_does_not_depend_on_it(p: list[float]) -> None:
    order = np.argsort(p, kind="stable")
    adjusted = np.array(holm(p))
    assert (np.diff(adjusted[order]) >= 0).all()
    assert holm([p[place] for place in order]) == pytest.approx(adjusted[order].tolist())


@given(P_VALUES, st.integers(0, 11), st.floats(0, 1))
def test_a_smaller_p_never_raises_another(p: list[float], place: int, share: float) -> None:
    smaller = [value * share if position == place else value for position, value in enumerate(p)]
    assert all(after <= before + 1e-12 for after, before in zip(holm(smaller), holm(p), strict=True))


def test_holm_makes_a_false_rejection_as_seldom_as_promised() -> None:
    rng = np.random.default_rng(0)
    wrong = sum(min(holm(rng.uniform(size=8).tolist())) < 0.05 for _ in range(2000))
    assert wrong / 2000 < 0.065 and sum(rng.uniform(size=(2000, 8)).min(1) < 0.05) / 2000 > 0.3


@pytest.mark.parametrize("bound", [-0.2, 0.0, 0.3])
def test_students_interval_gives_the_p_of_students_test(bound: float) -> None:
    values = np.random.default_rng(1).normal(0.1, 0.3, 12)
    half, mean = student_half_width(values), float(values.mean())
    found = sides(Interval(value=mean, lo=mean - half, hi=mean + half), bound, len(values))
    assert found.above == pytest.approx(ttest_1samp(values, bound, alternative="greater").pvalue)
    assert found.below == pytest.approx(ttest_1samp(values, bound, alternative="less").pvalue)


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-2, 2), st.integers(2, 500))
def test_p_and_interval_decide_alike(below: float, above: float, bound: float, users: int) -> None:
    found = sides(Interval(value=0.0, lo=-below, hi=above), bound, users)
    if abs(bound + below) > 1e-9 and abs(bound - above) > 1e-9:
        assert (found.above < 0.025) == (bound < -below) and (found.below < 0.025) == (bound > above)
    assert found.above + found.below == pytest.approx(1.0)


def test_only_the_side_of_the_bound_counts() -> None:
    narrow, wide = (sides(Interval(value=0.5, lo=0.4, hi=hi), 0.35, 20) for hi in (0.6, 0.99))
    assert narrow == wide


def test_an_exact_number_is_certain_and_an_unknown_interval_says_nothing() -> None:
    exact = Interval(value=0.5, lo=0.5, hi=0.5)
    assert (sides(exact, 0.4, 5).above, sides(exact, 0.6, 5).below) == (0.0, 0.0)
    assert sides(exact, 0.5, 5).above == sides(exact, 0.5, 5).below == 0.5
    assert sides(Interval(value=0.5, lo=-math.inf, hi=math.inf), 0.0, 5).above == 0.5
