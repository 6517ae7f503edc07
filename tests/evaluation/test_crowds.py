"""Recognition among parts of the users, and the prediction for more of them."""

from __future__ import annotations

import numpy as np
import pytest

from fedprint.evaluation.crowds import among_parts, predicted_ap
from fedprint.ranking import average_precision
from fedprint.types import Doubles, Ints


def _world(users: int, each: int = 5, signal: float = 0.75) -> tuple[Doubles, Ints]:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(users), each)
    centres = rng.normal(size=(users, 16))
    return (signal * centres[truth] + rng.normal(size=(len(truth), 16))) @ centres.T, truth


def _of_devices(users: int, each: int = 20) -> tuple[Doubles, Ints]:
    """Questions about one user err together, as updates of one device do."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(users), each)
    centres = rng.normal(size=(users, 16))
    known = 0.8 * centres + 0.8 * rng.normal(size=(users, 16))
    return (known[truth] + 0.5 * rng.normal(size=(len(truth), 16))) @ centres.T, truth


def _part(world: tuple[Doubles, Ints], users: int) -> tuple[Doubles, Ints]:
    scores, truth = world
    return scores[np.ix_(truth < users, np.arange(users))], truth[truth < users]


def test_a_twentieth_of_the_users_predicts_the_ap_of_all_of_them() -> None:
    world = _world(1500)
    measured = float(np.mean(average_precision(*world)))
    predicted = predicted_ap(*_part(world, 75), [1500], np.random.default_rng(1), confidence=0.99)[1500]
    assert predicted.lo <= measured <= predicted.hi
    assert predicted.value == pytest.approx(measured, rel=0.3)


def test_for_as_many_users_as_there_are_the_prediction_is_the_measurement() -> None:
    world = _world(200)
    measured = float(np.mean(average_precision(*world)))
    assert predicted_ap(*world, [200], np.random.default_rng(1), confidence=0.95)[200].value == pytest.approx(
        measured, abs=0.01
    )


def test_questions_about_one_user_that_err_together_are_counted_together() -> None:
    scores, truth = _of_devices(300)
    measured = float(np.mean(average_precision(scores, truth)))
    predicted = predicted_ap(scores, truth, [300], np.random.default_rng(1), confidence=0.95)[300]
    assert predicted.value == pytest.approx(measured, abs=0.01)


@pytest.mark.parametrize("users", [50, 300])
def test_scores_that_know_nothing_are_predicted_to_fall_to_chance(users: int) -> None:
    scores, truth = _world(users, signal=0.0)
    knows_nothing = np.random.default_rng(2).normal(size=scores.shape)
    few, many = predicted_ap(
        knows_nothing, truth, [users, 100 * users], np.random.default_rng(1), confidence=0.95
    ).values()
    assert few.value < 0.1
    assert many.value < 0.002


def test_perfect_scores_stay_perfect() -> None:
    truth = np.repeat(np.arange(60), 3)
    scores = 100.0 * (truth[:, None] == np.arange(60)) + np.random.default_rng(0).uniform(size=(180, 60))
    predicted = predicted_ap(scores, truth, [60, 1_000_000], np.random.default_rng(1), confidence=0.95)
    assert [interval.value for interval in predicted.values()] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_among_all_users_the_parts_give_the_plain_ap_and_among_fewer_more() -> None:
    world = _world(120)
    rng = np.random.default_rng(3)
    whole, fewer = (among_parts(*world, n, rng, draws=5, confidence=0.95) for n in (120, 12))
    assert whole["ap"].value == pytest.approx(float(np.mean(average_precision(*world))))
    assert fewer["ap"].lo > whole["ap"].hi
    assert fewer["tpr_1"].value == pytest.approx(whole["tpr_1"].value, abs=0.1)


def test_users_that_no_question_is_about_are_no_part_of_a_crowd() -> None:
    scores, truth = _world(40)
    asked = truth >= 20
    found = among_parts(scores[asked], truth[asked], 20, np.random.default_rng(0), draws=2, confidence=0.95)
    alone = among_parts(
        scores[asked][:, 20:], truth[asked] - 20, 20, np.random.default_rng(0), draws=2, confidence=0.95
    )
    assert found["ap"].value == pytest.approx(alone["ap"].value)
