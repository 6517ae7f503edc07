"""The machine's own margins against scikit-learn's, which solves the same problem class by class."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from fedprint.attacks.reidentification.linear_svm import one_vs_rest_margins


def _rows(users: int, per_user: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres, labels = rng.normal(size=(users, features)), np.repeat(np.arange(users), per_user)
    x, ask = (centres[labels] + 2 * rng.normal(size=(len(labels), features)) for _ in range(2))
    return (*((z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32) for z in (x, ask)), labels)


@pytest.mark.parametrize(("users", "per_user", "features"), [(2, 4, 5), (12, 3, 60), (150, 4, 40)])
def test_margins_are_those_of_the_exact_solution(users: int, per_user: int, features: int) -> None:
    x, ask, labels = _rows(users, per_user, features, seed=1)
    ours = one_vs_rest_margins(x, labels, ask, 1.0)
    exact = LinearSVC(C=1.0, tol=1e-9, max_iter=1_000_000, random_state=0).fit(x, labels).decision_function(ask)
    if users == 2:
        exact = np.stack([-exact, exact], axis=1)
    assert ours.shape == (len(ask), users)
    np.testing.assert_allclose(ours, exact, atol=5e-3)


def test_classes_are_fitted_by_themselves() -> None:
    x, ask, labels = _rows(9, 4, 30, seed=2)
    of_few = one_vs_rest_margins(x, np.where(labels == 3, 1, 0), ask, 1.0)
    np.testing.assert_allclose(one_vs_rest_margins(x, labels, ask, 1.0)[:, 3], of_few[:, 1], atol=1e-12)


def test_labels_need_not_be_all_of_the_options() -> None:
    x, ask, labels = _rows(4, 3, 10, seed=3)
    same = one_vs_rest_margins(x, labels, ask, 1.0)
    np.testing.assert_array_equal(one_vs_rest_margins(x, 2 * labels + 1, ask, 1.0), same)
