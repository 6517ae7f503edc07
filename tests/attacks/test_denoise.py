"""Taking nuisance directions out of kernels is taking them out of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from fedprint.attacks.denoise import SOFTNESS, denoised

N, P, B, D = 30, 12, 3, 40
FIT, NUISANCE = np.arange(P), np.arange(N - B, N)


@pytest.fixture
def rows() -> np.ndarray:
    """Return unit vectors (N, D); each of the first N - B leans towards one of the last B."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D))
    for i in range(N - B):
        x[i] += 8 * x[N - B + i % B]
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def kernel(x: np.ndarray) -> np.ndarray:
    return (x @ x[np.concatenate([FIT, NUISANCE])].T).astype(np.float32)


def unit_products(rest: np.ndarray) -> np.ndarray:
    rest = rest / np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 1e-9)
    return rest @ rest[FIT].T


def test_match_takes_out_the_one_direction_that_fits_best(rows: np.ndarray) -> None:
    directions = rows[NUISANCE]
    best = directions[(rows @ directions.T).argmax(1)]
    rest = rows - np.sum(rows * best, axis=1, keepdims=True) * best
    own = N - B  # a nuisance row leaves nothing of itself
    assert denoised(kernel(rows), FIT, NUISANCE, "match")[:own] == pytest.approx(unit_products(rest)[:own], abs=1e-5)


def test_project_takes_out_all_directions_softly(rows: np.ndarray) -> None:
    directions = rows[NUISANCE]
    # a soft projection of the inner product: <x, y> - x' E' (E E' + s I)^-1 E y
    metric = np.eye(D) - directions.T @ np.linalg.inv(directions @ directions.T + SOFTNESS * np.eye(B)) @ directions
    values, vectors = np.linalg.eigh(metric)
    rest = rows @ (vectors * np.sqrt(values))
    assert denoised(kernel(rows), FIT, NUISANCE, "project") == pytest.approx(unit_products(rest), abs=1e-5)


def test_people_behind_a_common_direction_come_apart(rows: np.ndarray) -> None:
    """Rows that share nothing but the nuisance look alike before and unlike after."""
    before = np.abs(kernel(rows)[FIT][:, :P] - np.eye(P)).max()
    for how in ("match", "project"):
        after = np.abs(denoised(kernel(rows), FIT, NUISANCE, how)[FIT] - np.eye(P))  # type: ignore[arg-type]
        assert before > 0.9
        assert after.max() < 0.75, how
