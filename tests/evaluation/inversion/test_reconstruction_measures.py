"""Measures of reconstructed images against independent implementations and cases solved by hand."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from fedprint.evaluation.inversion import reconstruction as measure


def images(seed: int = 0, v: int = 3, b: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random((v, b, 3, 16, 16))
    return np.clip(truth + 0.2 * rng.normal(size=truth.shape), 0, 1), truth


def test_the_error_is_a_ratio_of_norms_and_not_its_square() -> None:
    truth = np.full((1, 1, 1, 2, 2), 0.5)
    assert measure.relative_errors(truth + 0.1, truth)[0, 0] == pytest.approx(0.2)
    assert measure.relative_errors(np.zeros_like(truth), truth)[0, 0] == pytest.approx(1.0)


def test_the_assignment_has_the_smallest_sum_of_all_orders() -> None:
    rng = np.random.default_rng(1)
    truth, found = rng.random((4, 4, 1, 3, 3)), rng.random((4, 4, 1, 3, 3))
    best = measure.relative_errors(measure.rearranged(found, measure.assignment(found, truth)), truth).sum(1)
    for row in range(4):
        every = [
            measure.relative_errors(found[row, list(p)][None], truth[row][None]).sum() for p in permutations(range(4))
        ]
        assert best[row] == pytest.approx(min(every))


def test_a_reversed_batch_fails_in_index_order_and_not_in_the_best() -> None:
    _, truth = images()
    found = truth[:, ::-1]
    assert (measure.relative_errors(found, truth) > 0.3).all()
    order = measure.assignment(found, truth)
    assert (order == [[1, 0]] * 3).all()
    assert (measure.relative_errors(measure.rearranged(found, order), truth) == 0).all()


def test_psnr_and_ssim_match_torchmetrics() -> None:
    from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

    found, truth = images()
    a, x = (torch.from_numpy(array.reshape(-1, 3, 16, 16)) for array in (found, truth))
    for got, one, other in zip(measure.psnr(found, truth).ravel(), a, x, strict=True):
        assert got == pytest.approx(float(peak_signal_noise_ratio(one, other, data_range=1.0)), abs=1e-4)
    # they cut the edges where we mirror them: equal up to the border
    theirs = structural_similarity_index_measure(a, x, data_range=1.0, reduction="none")
    np.testing.assert_allclose(measure.ssim(found, truth).ravel(), theirs, atol=0.03)
    np.testing.assert_allclose(measure.ssim(truth, truth), 1.0)
    assert (measure.psnr(truth, truth) == 100).all()


def test_no_image_is_further_than_the_largest_error() -> None:
    found, truth = images()
    top = measure.largest_errors(truth)
    assert measure.relative_errors(np.round(1 - truth), truth) == pytest.approx(top)
    assert (measure.relative_errors(found, truth) <= top).all()


def test_labels_count_once_each_in_any_order() -> None:
    truth = [[1, 1, 2, 3]]
    assert measure.label_hits([[3, 1, 0, 0]], truth).tolist() == [[1, 0, 0, 1]]
    assert measure.label_hits([[1, 1, 1, 1]], truth).tolist() == [[1, 1, 0, 0]]


@pytest.mark.parametrize("truth", [[[4]], [[0, 1, 1, 2]], [[5, 5, 5, 5]]])
def test_chance_of_labels_is_what_random_labels_score(truth: list[list[int]]) -> None:
    drawn = np.random.default_rng(0).integers(0, 6, (20_000, len(truth[0])))
    simulated = measure.label_hits(drawn, np.repeat(truth, 20_000, axis=0)).mean()
    assert measure.chance_label_hits(truth, 6).mean() == pytest.approx(simulated, abs=0.01)
