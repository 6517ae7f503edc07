"""Defences at point 2: the contract of all, and the noise as the formula says."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from fedprint.defences.on_update import Noise
from fedprint.pipeline.registry import Defence
from fedprint.rng import torch_rng
from fedprint.types import DataDefence, UpdateDefence

IDENTITY = [Noise(sigma=0)]
ACTIVE = [Noise(sigma=1e-3), Noise(sigma=2.0)]
SIGMA, SIZE = 0.02, 40_000


def update(value: float = 0.0, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {"w": torch.full((200, 150), value, dtype=dtype), "b": torch.full((SIZE - 30_000,), value, dtype=dtype)}


def flat(values: dict[str, Tensor]) -> np.ndarray:
    return torch.cat([tensor.flatten() for tensor in values.values()]).double().numpy()


def test_every_update_defence_is_under_the_contract() -> None:
    known = {kind for kind in get_args(get_args(Defence)[0]) if issubclass(kind, UpdateDefence)}
    assert known == {type(defence) for defence in IDENTITY} == {type(defence) for defence in ACTIVE}


@pytest.mark.parametrize("defence", [*IDENTITY, *ACTIVE])
def test_a_defence_acts_at_one_point(defence: UpdateDefence) -> None:
    assert isinstance(defence, UpdateDefence)
    assert not isinstance(defence, DataDefence)


@pytest.mark.parametrize("defence", IDENTITY)
def test_identity_settings_change_no_bit(defence: UpdateDefence) -> None:
    sent = defence.on_device(update(0.3), torch_rng(0))
    mean = defence.on_server(update(0.3), 5, torch_rng(0))
    assert flat(dict(sent)).tolist() == flat(dict(mean)).tolist() == flat(update(0.3)).tolist()


@pytest.mark.parametrize("defence", ACTIVE)
def test_other_settings_change_every_layer(defence: UpdateDefence) -> None:
    sent, given = defence.on_device(update(0.3), torch_rng(0)), update(0.3)
    assert list(sent) == list(given)
    assert all((sent[name] != given[name]).double().mean() > 0.99 for name in given)
    assert all(sent[name].shape == given[name].shape and sent[name].dtype == given[name].dtype for name in given)


@pytest.mark.parametrize("defence", [*IDENTITY, *ACTIVE])
def test_the_update_given_is_left_alone(defence: UpdateDefence) -> None:
    given = update(0.3)
    defence.on_device(given, torch_rng(0))
    defence.on_server(given, 5, torch_rng(0))
    assert flat(given).tolist() == flat(update(0.3)).tolist()


@pytest.mark.parametrize("defence", ACTIVE)
def test_randomness_is_the_generators_only(defence: UpdateDefence) -> None:
    torch.manual_seed(1)
    first = flat(dict(defence.on_device(update(), torch_rng(0, "a"))))
    torch.manual_seed(2)
    assert flat(dict(defence.on_device(update(), torch_rng(0, "a")))).tolist() == first.tolist()
    other = flat(dict(defence.on_device(update(), torch_rng(0, "b"))))
    assert abs(np.corrcoef(first, other)[0, 1]) < 5 / np.sqrt(SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.7])
def test_noise_has_the_scale_it_says_and_no_other(value: float, dtype: torch.dtype) -> None:
    noise = flat(dict(Noise(sigma=SIGMA).on_device(update(value, dtype), torch_rng(0)))) - flat(update(value, dtype))
    assert stats.kstest(noise, "norm", args=(0, SIGMA)).pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(noise, "norm", args=(0, wrong * SIGMA)).pvalue < 1e-9
    assert noise.std() == pytest.approx(SIGMA, rel=5 / np.sqrt(2 * SIZE))
    assert abs(stats.kurtosis(noise)) < 5 * np.sqrt(24 / SIZE)


def test_sigma_is_the_standard_deviation_and_not_the_variance() -> None:
    noise = flat(dict(Noise(sigma=4.0).on_device(update(), torch_rng(0))))
    assert noise.var() == pytest.approx(16.0, rel=0.05)


def test_noise_is_fresh_in_every_coordinate_and_layer() -> None:
    noise = Noise(sigma=1.0).on_device(update(), torch_rng(0))
    assert len(np.unique(noise["w"][0].numpy())) == 150
    assert abs(np.corrcoef(noise["w"].flatten()[: len(noise["b"])], noise["b"])[0, 1]) < 5 / np.sqrt(len(noise["b"]))


def test_noise_without_clipping_claims_no_guarantee() -> None:
    assert Noise(sigma=10.0).event() is None


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf"), "much"])
def test_an_impossible_sigma_is_refused(sigma: float | str) -> None:
    with pytest.raises(ValidationError, match="sigma"):
        Noise(sigma=sigma)
