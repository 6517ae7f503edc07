from __future__ import annotations

import attack_cases as cases
import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from fedprint.attacks.features import matrix
from fedprint.attacks.matching.match import PRESETS, PairProblem
from fedprint.attacks.matching.metric import choose_metric, choose_temperature, grams, learn, similarity
from fedprint.attacks.matching.pairs import balanced_pairs
from fedprint.attacks.matching.towers import Towers, TowerSettings
from fedprint.attacks.updates import MemoryUpdates
from fedprint.rng import torch_rng
from fedprint.types import FedprintError

ALL = (("body.weight", "body.bias"), ("head.weight",))
HALF = cases.USERS * cases.PER_DEVICE


def _problem(updates: MemoryUpdates) -> tuple[PairProblem, np.ndarray]:
    labels = cases.truth(HALF)
    pairs, same = balanced_pairs(labels, labels, 1000, np.random.default_rng(0))
    rows = pairs + np.array([0, HALF])
    return PairProblem(updates=updates, fit=np.arange(HALF), labels=labels, pairs=rows, options=cases.USERS), same


# Pairs ----------------------------------------------------------------------------------------------------------------


def test_half_of_the_pairs_belong_together_in_random_order() -> None:
    left, right = np.repeat(np.arange(5), 3), np.repeat(np.arange(4), 6)
    pairs, same = balanced_pairs(left, right, 400, np.random.default_rng(0))
    np.testing.assert_array_equal(left[pairs[:, 0]] == right[pairs[:, 1]], same)
    assert same.sum() == 200
    assert 0.3 < np.mean(same[1:] == same[:-1]) < 0.7


def test_the_right_side_tells_nothing_about_the_answer() -> None:
    left, right = np.repeat(np.arange(5), 3), np.repeat(np.arange(5), [1, 2, 4, 8, 16])
    pairs, same = balanced_pairs(left, right, 20000, np.random.default_rng(0))
    counts = [np.bincount(right[pairs[same == kind, 1]], minlength=5) / 10000 for kind in (True, False)]
    np.testing.assert_allclose(counts[0], counts[1], atol=0.03)


def test_owners_without_a_left_side_are_not_asked_for() -> None:
    left, right = np.array([0, 0, 1]), np.array([0, 1, 2])
    pairs, _ = balanced_pairs(left, right, 100, np.random.default_rng(0))
    assert set(right[pairs[:, 1]]) == {0, 1}


def test_distinct_rows_are_never_paired_with_themselves() -> None:
    owners = np.array([0, 0, 1, 1, 2])
    pairs, same = balanced_pairs(owners, owners, 500, np.random.default_rng(0), distinct=True)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert set(owners[pairs[same, 1]]) == {0, 1}  # 2 has no second row


@pytest.mark.parametrize("left", [np.zeros(4, dtype=np.int64), np.array([5, 6])])
def test_pairs_that_cannot_exist_are_refused(left: np.ndarray) -> None:
    with pytest.raises(FedprintError, match="matching needs two users"):
        balanced_pairs(left, np.zeros(4, dtype=np.int64), 10, np.random.default_rng(0))


# Networks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "depth", "parameters"),
    [
        ([60], 1, 60 * 128 + 128 + 129),  # twins share their weights
        ([60], 2, 60 * 128 + 128 + 128 * 128 + 128 + 129),
        ([60, 40], 1, (60 + 40) * 128 + 2 * 128 + 129),
    ],
)
def test_architecture(inputs: list[int], depth: int, parameters: int) -> None:
    module = Towers(inputs, TowerSettings(depth=depth), torch_rng(0))
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert type(module.configure_optimizers()).__name__ == "RMSprop"
    assert module.configure_optimizers().defaults["lr"] == 1e-3


def test_twins_do_not_care_which_side_is_which() -> None:
    import torch

    module = Towers([6], TowerSettings(), torch_rng(0)).eval()
    a, b = torch.randn(2, 9, 6, generator=torch_rng(1))
    torch.testing.assert_close(module(a, b), module(b, a))
    hidden = [torch.relu(x @ module.towers[0][0].weight.T + module.towers[0][0].bias) for x in (a, b)]
    expected = (hidden[0] - hidden[1]).abs() @ module.out.weight[0] + module.out.bias
    torch.testing.assert_close(module(a, b), expected)


# Presets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp-product", "siamese", "siamese-2"])
def test_presets_find_a_planted_signal(name: str) -> None:
    problem, same = _problem(cases.planted(2.0))
    assert average_precision_score(same, PRESETS[name](problem, torch_rng(0))) > 0.75


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_find_nothing_where_nothing_is(name: str) -> None:
    problem, same = _problem(cases.planted(0.0, seed=5))
    assert 0.4 < average_precision_score(same, PRESETS[name](problem, torch_rng(0))) < 0.6


# The learned metric ---------------------------------------------------------------------------------------------------


def _gram(updates: MemoryUpdates):  # type: ignore[no-untyped-def]
    return next(grams(updates, np.arange(HALF), [(ALL, "l2")]))[1]


def test_the_dual_equals_the_plain_formula() -> None:
    """(W + c I)^-1 in the space of the parameters, cosines with respect to it."""
    updates, labels = cases.planted(1.0), cases.truth(HALF)
    learned = similarity(_gram(updates), np.arange(HALF), labels, 0.01).cosines
    x = matrix(updates, None).astype(np.float64)
    x -= x[:HALF].mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    within = x[:HALF] - np.stack([x[:HALF][labels == u].mean(0) for u in labels])
    scatter = within.T @ within
    inner = x @ np.linalg.inv(scatter + 0.01 * np.trace(scatter) * np.eye(x.shape[1])) @ x.T
    length = np.sqrt(np.diag(inner))
    np.testing.assert_allclose(learned, (inner / np.outer(length, length))[:, :HALF], atol=2e-4)


def test_users_outside_the_training_do_not_influence_the_others() -> None:
    updates, labels = cases.planted(1.0), cases.truth(HALF)
    other = updates.values.copy()
    strangers = np.flatnonzero(labels >= 8)
    other[strangers] = np.random.default_rng(9).normal(size=other[strangers].shape)
    fit = np.flatnonzero(labels < 8)
    both = [
        similarity(_gram(MemoryUpdates(sizes=updates.sizes, values=v)), fit, labels[fit], 0.01).cosines
        for v in (updates.values, other)
    ]
    kept = np.setdiff1d(np.arange(2 * HALF), strangers)
    np.testing.assert_allclose(both[0][np.ix_(kept, fit)], both[1][np.ix_(kept, fit)], atol=1e-6)


@pytest.mark.parametrize("new_users", [False, True])
def test_the_metric_is_chosen_across_devices_and_matches(new_users: bool) -> None:
    folds = cases.validation(1.5)
    settings = choose_metric(folds, np.random.default_rng(0), new_users=new_users)
    assert settings.ap > 0.7
    assert choose_temperature(folds, settings) > 1
    problem, same = _problem(cases.planted(1.5))
    taught = problem.labels < (cases.USERS // 2 if new_users else cases.USERS)
    learned = learn(problem.updates, problem.fit, problem.fit[taught], problem.labels[taught], settings)
    assert average_precision_score(same, learned.of_pairs(problem.pairs)) > 0.75


def test_class_similarity_is_the_mean_over_a_users_rows() -> None:
    updates, labels = cases.planted(1.0), cases.truth(HALF)
    learned = similarity(_gram(updates), np.arange(HALF), labels + 3, 0.1)
    nearness, present = learned.of_classes()
    np.testing.assert_array_equal(present, np.arange(cases.USERS) + 3)
    np.testing.assert_allclose(nearness[:, 2], learned.cosines[:, labels == 2].mean(1), rtol=1e-4)
