import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from fedprint.evaluation.outcomes import top_k_credit
from fedprint.evaluation.statistics import mean_ap_statistic
from fedprint.evaluation.utility import hit_rate, mae_gain, mean_absolute_error, mean_ap, top5_accuracy
from fedprint.types import FedprintError, Measurement

USERS = np.repeat(np.arange(20), 10)


def accuracy(scores: NDArray[np.floating], targets: NDArray[np.integer]) -> Measurement:
    return hit_rate("accuracy", top_k_credit(scores, targets, 1), USERS, 0, chance=1 / scores.shape[1])


def test_accuracy_counts_right_answers_and_knows_chance() -> None:
    rng = np.random.default_rng(0)
    scores, targets = rng.random((200, 4)), rng.integers(0, 4, 200)
    found = accuracy(scores, targets)
    assert found.value == pytest.approx(np.mean(scores.argmax(1) == targets))
    assert (found.metric, found.unit, found.chance, found.n_questions, found.n_users) == (
        "accuracy", "fraction", 0.25, 200, 20,
    )  # fmt: skip
    assert 0 <= found.lo <= 0.25 <= found.hi <= 1


def test_chance_of_accuracy_is_not_the_majority_class() -> None:
    targets = np.zeros(200, int)
    assert accuracy(np.zeros((200, 2)), targets).value == pytest.approx(0.5)


def test_perfect_accuracy_keeps_an_interval() -> None:
    targets = np.arange(200) % 3
    found = accuracy(np.eye(3)[targets], targets)
    assert (found.value, found.hi) == (1.0, 1.0) and 0.8 < found.lo < 0.9


def test_top5_leaves_out_tokens_that_do_not_count() -> None:
    rng = np.random.default_rng(1)
    scores, targets = rng.random((200, 50)), rng.integers(0, 50, 200)
    hits = top_k_credit(scores, targets, 5)
    hits[::3] = np.nan
    kept = np.arange(200) % 3 > 0
    slow = [t in np.argsort(-s)[:5] for s, t in zip(scores[kept], targets[kept], strict=True)]
    found = top5_accuracy(hits, USERS, 50, 0)
    assert found.value == pytest.approx(np.mean(slow))
    assert found.n_questions == kept.sum() and found.chance == pytest.approx(0.1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 9999), st.integers(2, 40), st.sampled_from([1, 3, 10**6]))
def test_mean_ap_matches_sklearn_with_ties_and_weights(seed: int, n: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(0, levels, (n, 4)) / levels, rng.random((n, 4)) < 0.3
    labels[0, 0] = True
    weights = rng.integers(0, 3, n).astype(float)
    weights[0] = 1
    present = [c for c in range(4) if (labels[:, c] * weights).any()]
    slow = [average_precision_score(labels[:, c], scores[:, c], sample_weight=weights) for c in present]
    assert mean_ap_statistic(scores, labels)(weights) == pytest.approx(np.mean(slow), abs=1e-12)


def test_mean_ap_of_random_scores_is_near_chance_and_of_perfect_ones_is_one() -> None:
    rng = np.random.default_rng(3)
    labels = rng.random((2000, 10)) < 0.1
    users = np.repeat(np.arange(50), 40)
    random, perfect = (mean_ap(s, labels, users, 0) for s in (rng.random(labels.shape), labels.astype(float)))
    assert random.chance is not None and random.lo < random.chance < random.hi
    assert perfect.value == perfect.hi == 1 and perfect.lo > 0.9


def test_mean_ap_interval_widens_when_users_are_alike_inside() -> None:
    rng = np.random.default_rng(4)
    users = np.repeat(np.arange(20), 50)
    labels = np.repeat(rng.random((20, 3)) < 0.4, 50, axis=0)
    scores = labels + np.repeat(rng.normal(size=(20, 3)), 50, axis=0)
    clustered, alone = mean_ap(scores, labels, users, 0), mean_ap(scores, labels, np.arange(1000), 0)
    assert clustered.hi - clustered.lo > 3 * (alone.hi - alone.lo)


def test_mean_absolute_error_has_a_range_and_a_chance() -> None:
    targets = np.tile([1.0, 5.0], 100)
    found = mean_absolute_error(np.full(200, 9.0), targets, USERS, 0)
    assert found.value == pytest.approx(2.0) and found.chance == pytest.approx(2.0)
    assert found.unit == "stars" and 0 <= found.lo <= 2 <= found.hi <= 4


def test_the_gain_over_a_guess_is_paired() -> None:
    """Targets differ more between users than the two predictions do; the pairing takes that out of the interval."""
    rng = np.random.default_rng(0)
    targets = np.clip(3 + rng.normal(size=200), 1, 5)
    guess = np.full(200, 3.0)
    better = guess + 0.1 * np.sign(targets - guess)
    found = mae_gain(better, guess, targets, USERS, 0)
    errors = [mean_absolute_error(x, targets, USERS, 0) for x in (guess, better)]
    assert found.metric == "mae_gain_over_median" and (found.unit, found.chance) == ("stars", 0.0)
    assert found.value == pytest.approx(errors[0].value - errors[1].value)
    assert 0 < found.lo < found.value < found.hi
    assert found.hi - found.lo < 0.3 * (errors[0].hi - errors[0].lo)
    worse = mae_gain(guess, better, targets, USERS, 0)
    assert worse.value == pytest.approx(-found.value) and worse.hi < 0


def test_predictions_outside_the_scale_count_as_its_ends() -> None:
    targets = np.tile([1.0, 5.0], 100)
    assert mae_gain(np.tile([-7.0, 9.0], 100), np.full(200, 3.0), targets, USERS, 0).value == pytest.approx(2.0)


def test_labels_without_a_positive_are_refused() -> None:
    with pytest.raises(FedprintError, match="positive"):
        mean_ap(np.zeros((4, 2)), np.zeros((4, 2)), np.arange(4), 0)
