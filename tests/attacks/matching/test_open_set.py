from __future__ import annotations

import attack_cases as cases
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedprint.attacks.matching.metric import grams, taught_rows
from fedprint.attacks.matching.open_set import (
    ByMetric,
    ByRidge,
    Calibration,
    World,
    answer_open,
    balanced_threshold,
    calibrate,
    folds_of,
)
from fedprint.attacks.reidentification.workspace import Workspace

BLOCK = ((("body.weight", "body.bias"),), "l2")
WORLD = World(seen=np.array([0, 2, 5]), holdout=np.array([1, 3, 4, 6, 7]))


def test_folds_of_some_users_hold_nothing_of_the_others() -> None:
    folds = cases.validation(1.0)
    kept = folds_of(folds, np.array([2, 5]))
    assert len(kept) == 2
    for whole, fold in zip(folds, kept, strict=True):
        assert set(fold.problem.labels) == set(fold.answers) == {2, 5}
        (block,) = fold.problem.updates.blocks(["head.weight"])
        (full,) = whole.problem.updates.blocks(["head.weight"])
        assert len(block) == 4 * cases.PER_DEVICE
        np.testing.assert_array_equal(
            block[fold.problem.fit], full[whole.problem.fit[np.isin(whole.problem.labels, [2, 5])]]
        )
        np.testing.assert_array_equal(block[fold.problem.ask], full[whole.problem.ask[np.isin(whole.answers, [2, 5])]])


def ridge() -> ByRidge:
    return ByRidge(blocks=(BLOCK,), penalty=0.1, work=Workspace())


def _scores(
    signal: float, threshold: float = -1.0, temperature: float = 20.0, namer: str = "metric"
) -> tuple[np.ndarray, np.ndarray]:
    updates, labels = cases.planted(signal), cases.truth(cases.USERS * cases.PER_DEVICE)
    fit = np.flatnonzero(np.isin(labels, WORLD.known))
    ((_, gram),) = grams(updates, fit, [BLOCK])
    asked = np.flatnonzero(~np.isin(labels, WORLD.holdout))
    problem = WORLD.problem(updates, fit, labels[fit], asked + len(labels))
    namers = {"metric": ByMetric(gram=gram, shrinkage=0.01), "ridge": ridge()}
    calibration = Calibration(temperature=temperature, threshold=threshold)
    return answer_open(namers[namer].scores(problem), len(WORLD.seen), calibration), labels[asked]


@pytest.mark.parametrize("namer", ["metric", "ridge"])
def test_seen_users_are_named_and_strangers_are_not(namer: str) -> None:
    scores, labels = _scores(2.0, namer=namer)
    assert scores.shape == (len(labels), 4)
    seen = np.isin(labels, WORLD.seen)
    assert np.mean(WORLD.seen[scores[seen, :3].argmax(1)] == labels[seen]) > 0.9
    assert roc_auc_score(~seen, scores[:, 3]) > 0.85


@pytest.mark.parametrize("threshold", [-5.0, -1.0, -0.1])
def test_unseen_wins_exactly_below_the_threshold(threshold: float) -> None:
    scores, _ = _scores(1.0, threshold)
    np.testing.assert_array_equal(scores.argmax(1) == 3, scores[:, :3].max(1) < threshold)


@pytest.mark.parametrize("namer", ["metric", "ridge"])
def test_seen_users_without_an_update_are_never_the_best(namer: str) -> None:
    updates, labels = cases.planted(1.0), cases.truth(cases.USERS * cases.PER_DEVICE)
    fit = np.flatnonzero(np.isin(labels, [0, 5, 1, 3]))
    ((_, gram),) = grams(updates, fit, [BLOCK])
    problem = WORLD.problem(updates, fit, labels[fit], np.arange(len(labels)))
    how = ByMetric(gram=gram, shrinkage=0.01) if namer == "metric" else ridge()
    scores = answer_open(how.scores(problem), len(WORLD.seen), Calibration(temperature=20.0, threshold=-1.0))
    assert (scores[:, 1] < scores[:, [0, 2]].min(1)).all()


def test_threshold_separates_strangers_best() -> None:
    scores = np.array([0.1, 0.2, 0.3, 0.8, 0.9])
    assert 0.3 < balanced_threshold(scores, np.array([True, True, True, False, False])) < 0.8
    mixed = balanced_threshold(scores, np.array([True, False, True, False, False]))
    assert 0.3 < mixed < 0.8  # 1 + 2/3 beats 1/2 + 1
    assert balanced_threshold(scores, np.ones(5, dtype=bool)) > 0.9
    assert balanced_threshold(scores, np.zeros(5, dtype=bool)) < 0.1


@pytest.mark.parametrize("namer", ["metric", "ridge"])
def test_calibration_finds_a_threshold_that_works_on_other_people(namer: str) -> None:
    folds = folds_of(cases.validation(2.0), WORLD.known)
    ((_, gram),) = grams(folds[0].problem.updates, taught_rows(folds), [BLOCK])
    how = ByMetric(gram=gram, shrinkage=0.01) if namer == "metric" else ridge()
    calibration = calibrate(folds, WORLD, how, np.random.default_rng(0))
    scores, labels = _scores(2.0, calibration.threshold, calibration.temperature, namer)
    seen = np.isin(labels, WORLD.seen)
    called = scores.argmax(1) == 3
    assert calibration.temperature > 1
    assert 0 < calibration.log_loss < np.log(1 + len(WORLD.seen))
    assert called[~seen].mean() - called[seen].mean() > 0.5
