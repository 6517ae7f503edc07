"""Noise that is correlated between rounds: its factorisation, what it saves, and its price by another library."""

from __future__ import annotations

import numpy as np
import pytest

from fedprint.accounting.accountants import accountant_named, load_dp_accounting
from fedprint.accounting.design import measured, rounds_within
from fedprint.accounting.events import PoissonGaussian
from fedprint.defences.correlated import band, noise_weights
from fedprint.types import Doubles


def _matrix(bands: int, rounds: int) -> Doubles:
    return np.asarray(sum(value * np.eye(rounds, k=-j) for j, value in enumerate(band(bands))))


@pytest.mark.parametrize(("bands", "rounds"), [(1, 5), (2, 7), (4, 4), (8, 30)])
def test_the_weights_invert_the_banded_matrix(bands: int, rounds: int) -> None:
    inverse = np.linalg.inv(_matrix(bands, rounds))[:, 0] * np.linalg.norm(band(bands))
    assert noise_weights(bands, rounds) == pytest.approx(inverse, abs=1e-12)


def test_one_band_is_independent_noise() -> None:
    assert noise_weights(1, 4) == (1.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("bands", [2, 5])
def test_rounds_of_one_group_change_rows_of_their_own_by_the_same_length(bands: int) -> None:
    columns = _matrix(bands, 40)[:, ::bands][:, :-1]
    gram = columns.T @ columns
    assert gram == pytest.approx(np.eye(len(gram)) * np.linalg.norm(band(bands)) ** 2)


def test_less_noise_adds_up_in_the_released_models() -> None:
    rounds = 64
    spread = {}
    for bands in (1, 8, 32):
        weights = np.array(noise_weights(bands, rounds))
        spread[bands] = float(np.linalg.norm(np.cumsum(weights)))  # of the last prefix sum
    assert spread[1] == pytest.approx(8.0)
    assert spread[32] < 0.75 * spread[8]
    assert spread[8] < 0.5 * spread[1]


@pytest.mark.parametrize(("bands", "rounds"), [(1, 12), (4, 12), (4, 13), (6, 3)])
def test_its_price_is_that_of_dp_accounting_for_the_rounds_of_one_group(bands: int, rounds: int) -> None:
    rate, z, delta = 0.1 * bands, 1.5, 1e-5
    found = measured(accountant_named("prv"), [PoissonGaussian(q=rate, sigma=z)] * rounds, delta, bands=bands)
    library = load_dp_accounting()
    by_library = library.pld.PLDAccountant()
    event = library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(z))
    by_library.compose(event, -(-rounds // bands))
    assert found.rounds == rounds
    assert found.value == pytest.approx(by_library.get_epsilon(delta), abs=0.02)


def test_a_budget_counts_the_rounds_of_one_group() -> None:
    events, accountant = [PoissonGaussian(q=0.5, sigma=3.0)] * 40, accountant_named("prv")
    alone = rounds_within(accountant, events, 2.0, 1e-5)
    assert rounds_within(accountant, events, 2.0, 1e-5, bands=4) == 4 * alone
