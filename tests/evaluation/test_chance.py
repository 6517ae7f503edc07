from itertools import combinations

import numpy as np
import pytest

from fedprint.evaluation.chance import expected_ap, expected_top_k, expected_uniform_error
from fedprint.types import FedprintError


def ap_of_positions(positions: tuple[int, ...]) -> float:
    return float(np.mean([(j + 1) / (position + 1) for j, position in enumerate(sorted(positions))]))


@pytest.mark.parametrize("total", range(1, 9))
def test_expected_ap_equals_the_mean_over_every_order(total: int) -> None:
    for positives in range(1, total + 1):
        by_hand = np.mean([ap_of_positions(positions) for positions in combinations(range(total), positives)])
        assert expected_ap(positives, total) == pytest.approx(by_hand, abs=1e-12)


def test_expected_ap_agrees_with_monte_carlo_for_many_questions() -> None:
    rng = np.random.default_rng(0)
    draws = [ap_of_positions(tuple(rng.choice(300, 7, replace=False))) for _ in range(4000)]
    error = np.std(draws) / np.sqrt(len(draws))
    assert abs(np.mean(draws) - expected_ap(7, 300)) < 4 * error


def test_one_positive_among_a_hundred_is_five_percent_not_one() -> None:
    assert float(expected_ap(1, 100)) == pytest.approx(0.0519, abs=1e-4)


def test_expected_ap_is_vectorised_over_users() -> None:
    counts = np.array([1, 3, 9])
    assert np.allclose(expected_ap(counts, 9), [expected_ap(n, 9) for n in counts])
    assert expected_ap(9, 9) == pytest.approx(1.0)
    assert expected_ap(1, 1) == pytest.approx(1.0)


@pytest.mark.parametrize(("positives", "total"), [(0, 3), (4, 3), ([1, 0], 3)])
def test_expected_ap_refuses_impossible_counts(positives: object, total: int) -> None:
    with pytest.raises(FedprintError, match="positives"):
        expected_ap(positives, total)  # type: ignore[arg-type]


def test_top_k_chance_is_k_over_m_and_at_most_one() -> None:
    assert np.allclose(expected_top_k(5, [2, 5, 10, 100]), [1, 1, 0.5, 0.05])


def test_uniform_error_agrees_with_a_fine_grid() -> None:
    grid = np.linspace(1, 5, 100_001)
    targets = np.array([1.0, 2.0, 3.0, 5.0])
    by_hand = [np.abs(grid - y).mean() for y in targets]
    assert np.allclose(expected_uniform_error(targets, 1, 5), by_hand, atol=1e-3)
