"""Linear algebra on another device than the CPU. ``cpu:0`` takes its paths on a machine without a GPU."""

from __future__ import annotations

import attack_cases as cases
import numpy as np
import pytest
import torch

from fedprint.attacks.dense import (
    leading_eigenpairs,
    matrix_product,
    nearest_rows,
    positive_solution,
    refined_solution,
    symmetrise,
)
from fedprint.attacks.features import in_span
from fedprint.attacks.reidentification import ridge
from fedprint.attacks.reidentification.presets import Knn, Svm
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.rng import torch_rng

THERE = ["cpu:0", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(30, 12))


@pytest.mark.parametrize("device", ["cpu", *THERE])
def test_each_gives_what_numpy_gives(device: str) -> None:
    square = ROWS.T @ ROWS
    targets = RNG.normal(size=(12, 3))
    np.testing.assert_allclose(matrix_product(ROWS, targets, device), ROWS @ targets)
    np.testing.assert_allclose(
        positive_solution(square.copy(), targets.copy(), device), np.linalg.solve(square, targets)
    )
    for count in (4, 12):
        values, vectors = leading_eigenpairs(square.copy(), count, device)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(square)[-count:])
        np.testing.assert_allclose(square @ vectors, vectors * values, atol=1e-9)


@pytest.mark.parametrize(("size", "rank", "shift"), [(40, 40, 0.3), (300, 20, 0.03), (300, 20, 1e-9)])
def test_a_refined_solution_is_that_of_float64(size: int, rank: int, shift: float) -> None:
    """With the last shift the float32 factor does not exist, or its answers do not converge."""
    half = RNG.normal(size=(size, rank)).astype(np.float32)
    matrix, targets = half @ half.T, RNG.normal(size=(size, 3))
    symmetrise(matrix)
    whole = matrix.astype(np.float64) + shift * np.eye(size)
    if np.linalg.eigvalsh(whole)[0] <= 0:  # a sum of squares but for rounding
        whole, shift = whole + 1e-3 * np.eye(size), shift + 1e-3
    kept = matrix.copy()
    found = refined_solution(matrix, shift, targets)
    np.testing.assert_allclose(found, np.linalg.solve(whole, targets), rtol=1e-6, atol=1e-8 * np.abs(found).max())
    np.testing.assert_array_equal(matrix, kept)


def test_a_matrix_and_its_transpose_are_averaged_in_place() -> None:
    matrix = RNG.normal(size=(2100, 2100)).astype(np.float32)
    mean = (matrix + matrix.T) / 2
    symmetrise(matrix)
    np.testing.assert_array_equal(matrix, mean)


@pytest.mark.parametrize("device", ["cpu", *THERE])
def test_nearest_rows_are_those_at_the_least_distance(device: str) -> None:
    known, asked = ROWS[:20].astype(np.float32), ROWS[20:].astype(np.float32)
    known[3] = 0  # an update that moved nothing: it is not of unit length as the others are
    distances = np.linalg.norm(asked[:, None] - known[None], axis=2)
    expected = np.sort(np.argsort(distances, axis=1)[:, :5], axis=1)
    np.testing.assert_array_equal(np.sort(nearest_rows(known, asked, 5, device), axis=1), expected)


@pytest.mark.parametrize("device", THERE)
def test_coordinates_keep_inner_products_there(device: str) -> None:
    x, fit = RNG.normal(size=(12, 40)).astype(np.float32), np.arange(6)
    low = in_span(x, fit, device)
    np.testing.assert_allclose(low @ low[fit].T, x @ x[fit].T, atol=1e-3)


@pytest.mark.parametrize("device", THERE)
@pytest.mark.parametrize("many", [0, 10_000])
@pytest.mark.parametrize("attack", [Ridge(), Knn(k=3), Svm()], ids=lambda attack: attack.name)
def test_attacks_score_there_as_here(attack: Attack, many: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "MANY", many)
    problem = cases.problem(cases.planted(0.5))
    here, there = Workspace(), Workspace(device)
    settings = attack.settings(cases.validation(0.5), here)
    expected = attack.scores(problem, settings, here, torch_rng(0))
    np.testing.assert_allclose(attack.scores(problem, settings, there, torch_rng(0)), expected, atol=1e-4)
