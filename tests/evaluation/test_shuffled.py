from itertools import permutations

import numpy as np
import pytest
from scipy.stats import kstest

from fedprint.evaluation.chance import expected_ap
from fedprint.evaluation.shuffled import PermutationTest, judge_jointly, null_means, permutation_test
from fedprint.ranking import average_precision, cross_average_precision
from fedprint.rng import numpy_rng


def clumped_scores(rng: np.random.Generator, users: int, updates: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores without any information on the link, but alike for the updates of one user."""
    truth = np.repeat(np.arange(users), updates)
    per_user = rng.normal(size=(users, users))
    return per_user[truth] + 1e-6 * rng.normal(size=(len(truth), users)), truth


def check(p_high: float, p_low: float = 1.0, count: int = 9999, users: int = 50) -> PermutationTest:
    return PermutationTest(
        value=0.2,
        p_high=p_high,
        p_low=p_low,
        null_mean=0.1,
        null_lo=0.08,
        null_hi=0.12,
        permutations=count,
        n_users=users,
    )


def test_clumps_without_information_beat_the_chance_of_independent_scores() -> None:
    scores, truth = clumped_scores(numpy_rng(0), 100, 10)
    clumped = float(np.mean(cross_average_precision(scores, truth)))
    by_formula = np.mean([np.mean(np.arange(1, 11) / (10 * r + np.arange(1, 11))) for r in range(100)])
    assert clumped == pytest.approx(by_formula, rel=0.02)
    assert clumped > 1.7 * expected_ap(10, 1000)


def test_the_permutation_null_is_centred_on_clumped_scores() -> None:
    gaps = [
        found.value - found.null_mean
        for found in (permutation_test(*clumped_scores(numpy_rng(s), 20, 5), numpy_rng(s), 200) for s in range(200))
    ]
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / np.sqrt(len(gaps))


def test_p_values_are_uniform_without_a_link_even_when_updates_clump() -> None:
    found = [permutation_test(*clumped_scores(numpy_rng(1, s), 12, 6), numpy_rng(2, s), 199) for s in range(400)]
    assert kstest([t.p_high for t in found], "uniform").pvalue > 0.01
    assert np.mean([t.p_two_sided < 0.05 for t in found]) < 0.08


@pytest.mark.parametrize("sign", [1, -1])
def test_a_planted_leak_is_caught_in_either_direction(sign: int) -> None:
    scores, truth = clumped_scores(numpy_rng(3), 40, 5)
    scores[np.arange(len(truth)), truth] += 2 * sign
    found = permutation_test(scores, truth, numpy_rng(4), 1999)
    assert found.p_two_sided < 0.01
    assert not judge_jointly({"attack": found}).passed


def test_the_null_equals_every_permutation_of_a_small_table() -> None:
    table = numpy_rng(5).random((5, 5))
    exact = [table[list(p), np.arange(5)].mean() for p in permutations(range(5))]
    drawn = null_means(table, numpy_rng(6), 20_000)
    assert {round(x, 9) for x in drawn} == {round(x, 9) for x in exact}
    assert drawn.mean() == pytest.approx(np.mean(exact), abs=0.005)
    assert drawn.std() == pytest.approx(np.std(exact), rel=0.03)


def test_the_statistic_is_the_mean_ap_and_spare_columns_are_fine() -> None:
    rng = numpy_rng(7)
    truth = rng.integers(0, 5, 40)
    scores = rng.normal(size=(40, 9))
    found = permutation_test(scores, truth, numpy_rng(8), 99)
    assert found.value == pytest.approx(np.nanmean(average_precision(scores, truth)))
    assert found.n_users == 5
    assert found == permutation_test(scores, truth, numpy_rng(8), 99)


def test_constant_scores_are_no_evidence() -> None:
    found = permutation_test(np.zeros((20, 4)), np.arange(20) % 4, numpy_rng(0), 99)
    assert found.p_high == found.p_low == 1.0


def test_joint_verdict_is_bonferroni_over_all_checks() -> None:
    clean = {f"attack {i}": check(0.02) for i in range(10)}
    assert judge_jointly(clean).passed
    assert judge_jointly(clean).adjusted["attack 0"] == pytest.approx(0.4)
    verdict = judge_jointly({**clean, "leaky": check(0.0005)})
    assert not verdict.passed and verdict.failed == ("leaky",)
    assert "leaky" in verdict.text and "fails" in verdict.text


def test_a_clean_bench_fails_at_most_at_the_stated_rate() -> None:
    p = numpy_rng(9).random((2000, 12))
    failures = [not judge_jointly({str(i): check(x, 1 - x) for i, x in enumerate(row)}).passed for row in p]
    assert 0.03 < np.mean(failures) < 0.065


def test_checks_that_cannot_fail_are_named_and_none_is_no_pass() -> None:
    verdict = judge_jointly({"short": check(0.5, count=19), "small": check(0.5, users=3), "good": check(0.5)})
    assert verdict.passed and verdict.powerless == ("short", "small")
    assert "2 of them had too few" in verdict.text
    assert not judge_jointly({}).passed
