import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from fedprint.evaluation.outcomes import named_at, outcomes, top_k_credit
from fedprint.ranking import _PAIRS, average_precision, cross_average_precision
from fedprint.types import FedprintError


def ranking(seed: int, questions: int, options: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, levels, (questions, options)).astype(float), rng.integers(0, options, questions)


tables = st.tuples(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 8), st.sampled_from([1, 2, 5, 10**6]))


@settings(max_examples=60, deadline=None)
@given(tables)
def test_cross_table_and_ap_match_sklearn_ties_included(table: tuple[int, int, int, int]) -> None:
    scores, truth = ranking(*table)
    cross, ap = cross_average_precision(scores, truth), average_precision(scores, truth)
    for user in range(scores.shape[1]):
        if not (truth == user).any():
            assert np.isnan(ap[user]) and np.isnan(cross[:, user]).all()
            continue
        for column in range(scores.shape[1]):
            expected = average_precision_score(truth == user, scores[:, column])
            assert cross[column, user] == pytest.approx(expected, abs=1e-12)
        assert ap[user] == pytest.approx(cross[user, user], abs=1e-12)


@pytest.mark.parametrize("questions", [_PAIRS, _PAIRS + 1])
def test_ap_of_many_questions_matches_sklearn_ties_included(questions: int) -> None:
    scores, truth = ranking(0, questions, 4, 5)
    expected = [average_precision_score(truth == user, scores[:, user]) for user in range(4)]
    assert average_precision(scores, truth) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(tables, st.integers(1, 6))
def test_top_k_credit_is_the_mean_over_random_tie_breaks(table: tuple[int, int, int, int], k: int) -> None:
    scores, truth = ranking(*table)
    rng, own = np.random.default_rng(0), np.arange(len(truth))
    hits = []
    for _ in range(400):
        order = np.lexsort((rng.random(scores.shape), -scores), axis=1)
        hits.append((order[:, :k] == truth[own][:, None]).any(1))
    assert np.allclose(np.mean(hits, axis=0), top_k_credit(scores, truth, k), atol=0.14)


@pytest.mark.parametrize("k", [1, 5])
def test_constant_scores_earn_k_over_m(k: int) -> None:
    assert np.allclose(top_k_credit(np.zeros((6, 20)), np.arange(6), k), k / 20)


def test_only_users_with_a_question_count() -> None:
    scores, truth = ranking(1, 10, 30, 10**6)
    found = outcomes(scores, truth, truth)
    assert found.columns.tolist() == sorted(set(truth.tolist()))
    assert not np.isnan(found.ap).any()
    assert found.counts.sum() == 10 and found.prevalence.sum() == pytest.approx(1.0)
    assert found.n_options == 30


def test_perfect_scores_give_ap_and_hits_of_one() -> None:
    truth = np.repeat(np.arange(7), 3)
    found = outcomes(np.eye(7)[truth], truth, truth)
    assert np.allclose(found.ap, 1) and np.allclose(found.top1, 1) and np.allclose(found.top5, 1)


def test_random_scores_reach_chance_on_average() -> None:
    rng, truth = np.random.default_rng(3), np.repeat(np.arange(20), 5)
    gaps = []
    for _ in range(200):
        found = outcomes(rng.normal(size=(100, 20)), truth, truth)
        gaps.append(float((found.ap - found.chance_ap).mean()))
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / np.sqrt(len(gaps))


@pytest.mark.parametrize(
    ("scores", "truth", "message"),
    [
        (np.zeros((2, 3)), [0], "truth"),
        (np.zeros(3), [0, 1, 2], "scores"),
        (np.zeros((0, 3)), [], "empty"),
        (np.full((2, 3), np.nan), [0, 1], "NaN"),
        (np.zeros((2, 3)), [0, 3], "columns 0 to 2"),
        (np.zeros((2, 3)), [0, -1], "columns 0 to 2"),
    ],
)
def test_bad_rankings_are_named(scores: np.ndarray, truth: list[int], message: str) -> None:
    with pytest.raises(FedprintError, match=message):
        outcomes(scores, truth, truth)


def test_named_at_counts_wrong_users_among_all_pairs() -> None:
    scores = np.full((100, 11), -1.0)
    truth = np.zeros(100, dtype=np.int64)
    scores[:, 0] = np.arange(100) / 100
    scores[0, 1:] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]  # ten of the thousand wrong pairs
    at_most_1, at_most_01, never = named_at(scores, truth, (0.01, 0.001, 0.0))
    assert at_most_1.sum() == 100, "the threshold is below all that the first question's wrong users have"
    assert at_most_01.sum() == 9, "above the second best wrong pair, .9"
    assert never.sum() == 4, "above the best wrong pair, .95"


def test_random_scores_are_named_at_the_false_positive_rate() -> None:
    rng = np.random.default_rng(0)
    scores, truth = rng.random((4000, 50)), rng.integers(0, 50, 4000)
    assert named_at(scores, truth, (0.1, 0.01)).mean(1) == pytest.approx([0.1, 0.01], rel=0.2)


def test_constant_scores_name_nobody() -> None:
    assert not named_at(np.zeros((5, 4)), np.zeros(5, dtype=np.int64), (0.5,)).any()
