from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest

from fedprint.evaluation.intervals import (
    Interval,
    cluster_bootstrap_interval,
    cluster_mean_interval,
    difference_interval,
    mean_interval,
    proportion_interval,
    ratio_interval,
    safe_bounds,
)
from fedprint.rng import numpy_rng
from fedprint.types import FedprintError

Draw = Callable[[np.random.Generator], np.ndarray]
SIMULATIONS, RESAMPLES = 800, 400


def coverage(truth: float, interval: Callable[[np.random.Generator], Interval], name: str) -> float:
    rng = numpy_rng(7, name)
    found = [interval(rng) for _ in range(SIMULATIONS)]
    return float(np.mean([i.lo - 1e-12 <= truth <= i.hi + 1e-12 for i in found]))


def mean_of(draw: Draw) -> Callable[[np.random.Generator], Interval]:
    return lambda rng: mean_interval(draw(rng), rng, resamples=RESAMPLES)


def pooled_ranks(users: int) -> tuple[Draw, float]:
    return lambda rng: 1 / rng.integers(1, users + 1, users), float(np.mean(1 / np.arange(1, users + 1)))


def betas(mean: float, strength: float, users: int) -> tuple[Draw, float]:
    return lambda rng: rng.beta(mean * strength, (1 - mean) * strength, users), mean


def perfect_but_for_some(share: float, users: int) -> tuple[Draw, float]:
    return lambda rng: np.where(rng.random(users) < share, 1.0, rng.random(users)), share + (1 - share) / 2


AWAY_FROM_EDGES = {
    **{f"1/rank, {users} users": pooled_ranks(users) for users in (40, 100)},
    **{
        f"beta {mean} strength {strength}, {users} users": betas(mean, strength, users)
        for mean, strength, users in product((0.02, 0.5, 0.98), (5, 30), (40, 100))
    },
    "perfect but for a tenth": perfect_but_for_some(0.9, 100),
}


@pytest.mark.parametrize("name", AWAY_FROM_EDGES)
def test_mean_interval_covers_and_is_not_vacuous(name: str) -> None:
    draw, truth = AWAY_FROM_EDGES[name]
    assert 0.92 <= coverage(truth, mean_of(draw), name) <= 0.995


@pytest.mark.parametrize("share", [0.97, 0.99])
def test_mean_interval_covers_where_nearly_all_users_are_equal(share: float) -> None:
    draw, truth = perfect_but_for_some(share, 60)
    assert coverage(truth, mean_of(draw), f"edge {share}") >= 0.92


def test_a_percentile_bootstrap_fails_where_ours_covers() -> None:
    draw, truth = perfect_but_for_some(0.98, 40)

    def percentile(rng: np.random.Generator) -> Interval:
        values = draw(rng)
        means = values[rng.integers(0, 40, (RESAMPLES, 40))].mean(1)
        return Interval(value=values.mean(), lo=np.quantile(means, 0.025), hi=np.quantile(means, 0.975))

    assert coverage(truth, percentile, "percentile") < 0.7
    assert coverage(truth, mean_of(draw), "ours") >= 0.92


@pytest.mark.parametrize(("value", "lo", "hi"), [(1.0, 0.025 ** (1 / 40), 1.0), (0.0, 0.0, 1 - 0.025 ** (1 / 40))])
def test_equal_users_at_an_edge_get_the_binomial_bound(value: float, lo: float, hi: float) -> None:
    found = mean_interval(np.full(40, value), numpy_rng(0))
    assert (found.value, found.lo, found.hi) == pytest.approx((value, lo, hi))


@pytest.mark.parametrize("users", [1, 2, 3, 7])
@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_few_equal_users_keep_a_wide_interval_inside_the_range(users: int, value: float) -> None:
    found = mean_interval(np.full(users, value), numpy_rng(0))
    assert 0 <= found.lo <= value <= found.hi <= 1
    assert found.hi - found.lo > 0.35


@pytest.mark.parametrize(("mean", "users"), [(0.02, 60), (0.3, 60), (0.9, 60), (0.3, 20)])
def test_hit_rates_cover_with_unequal_numbers_of_questions(mean: float, users: int) -> None:
    def interval(rng: np.random.Generator) -> Interval:
        counts = rng.integers(1, 20, users)
        hits = rng.binomial(counts, rng.beta(mean * 4, (1 - mean) * 4, users))
        return ratio_interval(hits, counts, rng, resamples=RESAMPLES)

    assert 0.92 <= coverage(mean, interval, f"hits {mean} {users}") <= 0.995


def test_treating_dependent_questions_as_independent_would_not_cover() -> None:
    def naive(rng: np.random.Generator) -> Interval:
        return proportion_interval(rng.binomial(20, rng.beta(1, 1, 40)).sum(), 800)

    assert coverage(0.5, naive, "naive") < 0.8


def test_cluster_mean_is_the_ratio_of_sums() -> None:
    rng = np.random.default_rng(0)
    users, values = rng.integers(0, 30, 400) * 7, rng.random(400)
    by_user = [values[users == u] for u in np.unique(users)]
    slow = ratio_interval([v.sum() for v in by_user], [len(v) for v in by_user], numpy_rng(1))
    assert vars(cluster_mean_interval(values, users, numpy_rng(1))) == pytest.approx(vars(slow))


def test_paired_difference_covers_and_is_narrower_than_unpaired() -> None:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        base = rng.uniform(0.2, 0.7, 60)
        return base + rng.uniform(0, 0.1, 60), base

    assert 0.92 <= coverage(0.05, lambda rng: difference_interval(*draw(rng), rng, resamples=RESAMPLES), "d") <= 0.995
    a, b = draw(numpy_rng(3))
    paired, alone = difference_interval(a, b, numpy_rng(4)), mean_interval(a, numpy_rng(4))
    assert (paired.hi - paired.lo) < 0.3 * (alone.hi - alone.lo)


def test_rare_differences_are_covered() -> None:
    def interval(rng: np.random.Generator) -> Interval:
        return difference_interval(np.where(rng.random(60) < 0.03, 1, 0.5), np.full(60, 0.5), rng, resamples=RESAMPLES)

    assert coverage(0.015, interval, "rare") >= 0.92


def test_unbounded_means_cover() -> None:
    def interval(rng: np.random.Generator) -> Interval:
        return mean_interval(rng.exponential(1, 60), rng, resamples=RESAMPLES, bounds=None)

    assert 0.92 <= coverage(1.0, interval, "exponential") <= 0.995


def test_unbounded_means_of_very_few_users_are_finite_and_cover() -> None:
    """A bootstrap sample of three users is a single one's every ninth time: Student's t stands in for infinity."""

    def interval(rng: np.random.Generator) -> Interval:
        return mean_interval(rng.normal(2, 1, 3), rng, resamples=RESAMPLES, bounds=None)

    found = mean_interval([1.0, 2.0, 9.0], numpy_rng(0), bounds=None)
    assert -np.inf < found.lo < 1 and 9 < found.hi < np.inf
    assert coverage(2.0, interval, "three") >= 0.92


def test_bounds_rescale_the_interval() -> None:
    values = np.random.default_rng(0).random(50)
    unit, wide = mean_interval(values, numpy_rng(2)), mean_interval(4 * values - 2, numpy_rng(2), bounds=(-2, 2))
    assert [4 * unit.lo - 2, 4 * unit.hi - 2] == pytest.approx([wide.lo, wide.hi])


def test_bootstrap_of_a_callable_covers_for_a_mean_over_users() -> None:
    users = np.repeat(np.arange(40), 5)

    def interval(rng: np.random.Generator) -> Interval:
        values = (rng.random(200) < np.repeat(rng.beta(2, 2, 40), 5)).astype(float)
        return cluster_bootstrap_interval(lambda w: float(w @ values / w.sum()), users, rng, resamples=100)

    assert 0.92 <= coverage(0.5, interval, "callable") <= 0.995


def test_bootstrap_of_a_perfect_callable_does_not_collapse() -> None:
    found = cluster_bootstrap_interval(lambda w: 1.0, np.arange(30), numpy_rng(0))
    assert found.hi == 1 and 0.8 < found.lo < 0.9


@pytest.mark.parametrize(("hits", "trials"), [(0, 20), (3, 20), (20, 20)])
def test_proportion_interval_is_clopper_pearson(hits: int, trials: int) -> None:
    reference = binomtest(hits, trials).proportion_ci(method="exact")
    found = proportion_interval(hits, trials)
    assert (found.lo, found.hi) == pytest.approx((reference.low, reference.high))


def test_safe_bounds_hold_for_users_that_never_vary() -> None:
    lo, hi = safe_bounds(np.full(600, 0.37), np.ones(600), 0.025)
    assert 0.36 < lo < 0.37 < hi < 0.38


def test_more_confidence_is_wider_and_the_seed_decides() -> None:
    values = np.random.default_rng(0).random(50)
    narrow, wide = (mean_interval(values, numpy_rng(5), confidence=c) for c in (0.8, 0.99))
    assert wide.lo < narrow.lo < narrow.hi < wide.hi
    assert mean_interval(values, numpy_rng(5)) == mean_interval(values, numpy_rng(5))


@pytest.mark.parametrize(
    ("sums", "counts", "message"),
    [
        ([], [], "one sum"),
        ([1.0], [0.0], "at least one question"),
        ([np.nan], [1.0], "finite"),
        ([2.0], [1.0], "outside"),
    ],
)
def test_bad_clusters_are_named(sums: list[float], counts: list[float], message: str) -> None:
    with pytest.raises(FedprintError, match=message):
        ratio_interval(sums, counts, numpy_rng(0))
