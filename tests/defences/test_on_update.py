"""Defences at point 2: the contract of all, and the noise as the formula says."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from fedprint import params as algebra
from fedprint.defences.on_update import DpFedAvg, DpLocal, Laplace, Noise, Quantise, Sign, TopK, clipped
from fedprint.defences.points import has_guarantee
from fedprint.kinds.components import Defence
from fedprint.rng import torch_rng
from fedprint.types import DataDefence, FedprintError, UpdateDefence

IDENTITY = [
    Noise(sigma=0), DpLocal(clip=1e6, z=0), DpFedAvg(clip=1e6, z=0), TopK(share=1), TopK(share=1, per_layer=True),
    Laplace(sigma=0), Quantise(bits=32), Sign(enabled=False),
]  # fmt: skip
NOISY = [Noise(sigma=1e-3), Noise(sigma=2.0), Laplace(sigma=0.1), DpLocal(z=1e-3), DpLocal(clip=1, z=1)]
DETERMINISTIC = [DpFedAvg(clip=1, z=0.5), TopK(share=0.05), TopK(share=0.3, per_layer=True), Sign()]
ACTIVE = [*NOISY, *DETERMINISTIC, DpLocal(clip=1, z=0), Quantise(bits=1), Quantise(bits=8)]
SIGMA, SIZE = 0.02, 40_000


def update(value: float = 0.0, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {"w": torch.full((200, 150), value, dtype=dtype), "b": torch.full((SIZE - 30_000,), value, dtype=dtype)}


def trained(dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, Tensor]:
    """Return an update whose entries all differ."""
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(tensor.shape, generator=rng).to(dtype) for name, tensor in update().items()}


def flat(values: dict[str, Tensor]) -> np.ndarray:
    return torch.cat([tensor.flatten() for tensor in values.values()]).double().numpy()


def test_every_update_defence_is_under_the_contract() -> None:
    known = {kind for kind in get_args(get_args(Defence)[0]) if issubclass(kind, UpdateDefence)}
    assert known == {type(defence) for defence in IDENTITY} == {type(defence) for defence in ACTIVE}


@pytest.mark.parametrize("defence", [*IDENTITY, *ACTIVE])
def test_a_defence_acts_at_one_point(defence: UpdateDefence) -> None:
    assert isinstance(defence, UpdateDefence)
    assert not isinstance(defence, DataDefence)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("defence", IDENTITY)
def test_identity_settings_change_no_bit(defence: UpdateDefence, dtype: torch.dtype) -> None:
    sent = defence.on_device(trained(dtype), torch_rng(0))
    mean = defence.on_server(trained(dtype), 5, torch_rng(0))
    assert all(torch.equal(sent[name], tensor) for name, tensor in trained(dtype).items())
    assert all(torch.equal(mean[name], tensor) for name, tensor in trained(dtype).items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("defence", ACTIVE)
def test_other_settings_change_every_layer_and_keep_names_shapes_and_types(
    defence: UpdateDefence, dtype: torch.dtype
) -> None:
    given = trained(dtype)
    sent = defence.on_device(given, torch_rng(0))
    assert list(sent) == list(given)
    assert all((sent[name] != given[name]).double().mean() > 0.6 for name in given)
    assert all(sent[name].shape == given[name].shape and sent[name].dtype == dtype for name in given)


@pytest.mark.parametrize("defence", [*IDENTITY, *ACTIVE])
def test_the_update_given_is_left_alone(defence: UpdateDefence) -> None:
    given = trained()
    for kept in (defence.on_device(given, torch_rng(0)), defence.on_server(given, 5, torch_rng(0))):
        assert list(kept) == list(given)
        assert flat(given).tolist() == flat(trained()).tolist()


@pytest.mark.parametrize("defence", NOISY)
def test_noise_is_the_generators_only(defence: UpdateDefence) -> None:
    torch.manual_seed(1)
    first = flat(dict(defence.on_device(update(), torch_rng(0, "a"))))
    torch.manual_seed(2)
    assert flat(dict(defence.on_device(update(), torch_rng(0, "a")))).tolist() == first.tolist()
    other = flat(dict(defence.on_device(update(), torch_rng(0, "b"))))
    assert abs(np.corrcoef(first, other)[0, 1]) < 5 / np.sqrt(SIZE)


@pytest.mark.parametrize("defence", [*DETERMINISTIC, DpLocal(clip=1, z=0)])
def test_what_needs_no_randomness_draws_none(defence: UpdateDefence) -> None:
    a, b = (flat(dict(defence.on_device(trained(), torch_rng(0, name)))) for name in "ab")
    assert a.tolist() == b.tolist()


# ---- noise ---------------------------------------------------------------------------------------------------------


def is_normal(noise: np.ndarray, sigma: float) -> None:
    """Accept N(0, sigma^2), reject two thirds of sigma and three halves."""
    is_drawn_from("norm", noise, sigma)


def is_drawn_from(law: str, noise: np.ndarray, scale: float) -> None:
    assert stats.kstest(noise, law, args=(0, scale)).pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(noise, law, args=(0, wrong * scale)).pvalue < 1e-9


@pytest.mark.parametrize("defence", [DpLocal(clip=4, z=SIGMA / 4), DpLocal(clip=0.5, z=2 * SIGMA)])
@pytest.mark.parametrize("value", [0.0, 0.7])
def test_dp_local_clips_and_then_adds_z_times_the_clip_on_the_device(defence: DpLocal, value: float) -> None:
    sent = flat(dict(defence.on_device(update(value, torch.float64), torch_rng(0))))
    is_normal(sent - flat(algebra.clip(update(value, torch.float64), defence.clip)), SIGMA)


@pytest.mark.parametrize("cohort", [1, 8])
def test_dp_fedavg_noises_the_mean_on_the_server_by_the_number_of_devices(cohort: int) -> None:
    defence = DpFedAvg(clip=0.5, z=2 * SIGMA)
    mean = flat(dict(defence.on_server(update(0.7, torch.float64), cohort, torch_rng(0))))
    is_normal(mean - 0.7, SIGMA / cohort)
    sent = flat(dict(defence.on_device(update(0.7, torch.float64), torch_rng(0))))
    np.testing.assert_allclose(sent, flat(algebra.clip(update(0.7, torch.float64), 0.5)))


def test_what_claims_a_guarantee() -> None:
    unpriced = [DpFedAvg(z=0), DpLocal(z=3), Noise(sigma=10.0), TopK(share=0.1), Sign()]
    assert has_guarantee([*unpriced, DpFedAvg(z=1.5)])
    assert not has_guarantee(unpriced)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.7])
def test_noise_has_the_scale_it_says_and_no_other(value: float, dtype: torch.dtype) -> None:
    noise = flat(dict(Noise(sigma=SIGMA).on_device(update(value, dtype), torch_rng(0)))) - flat(update(value, dtype))
    is_normal(noise, SIGMA)
    assert noise.std() == pytest.approx(SIGMA, rel=5 / np.sqrt(2 * SIZE))
    assert abs(stats.kurtosis(noise)) < 5 * np.sqrt(24 / SIZE)


def test_laplace_noise_has_the_scale_it_says_and_no_other() -> None:
    noise = flat(dict(Laplace(sigma=SIGMA).on_device(update(0.7, torch.float64), torch_rng(0)))) - 0.7
    is_drawn_from("laplace", noise, SIGMA / np.sqrt(2))
    assert stats.kstest(noise, "norm", args=(0, SIGMA)).pvalue < 1e-9


def test_sigma_is_the_standard_deviation_and_not_the_variance() -> None:
    noise = flat(dict(Noise(sigma=4.0).on_device(update(), torch_rng(0))))
    assert noise.var() == pytest.approx(16.0, rel=0.05)


def test_noise_is_fresh_in_every_coordinate_and_layer() -> None:
    noise = Noise(sigma=1.0).on_device(update(), torch_rng(0))
    assert len(np.unique(noise["w"][0].numpy())) == 150
    assert abs(np.corrcoef(noise["w"].flatten()[: len(noise["b"])], noise["b"])[0, 1]) < 5 / np.sqrt(len(noise["b"]))


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf"), "much"])
def test_an_impossible_sigma_is_refused(sigma: float | str) -> None:
    with pytest.raises(ValidationError, match="sigma"):
        Noise(sigma=sigma)


# ---- clipping ------------------------------------------------------------------------------------------------------

ENTRIES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3)


@given(updates=st.lists(ENTRIES, min_size=2, max_size=6), most=st.floats(1e-3, 1e3))
def test_one_device_more_or_less_moves_the_clipped_sum_by_at_most_the_clip(
    updates: list[list[float]], most: float
) -> None:
    given = [{"w": torch.tensor(u[:2]).double(), "b": torch.tensor(u[2:]).double()} for u in updates]
    for defence in (DpLocal(clip=most, z=0), DpFedAvg(clip=most, z=0)):
        sent = [flat(dict(defence.on_device(one, torch_rng(0)))) for one in given]
        whole = sum(sent)
        for left_out in range(len(sent)):
            rest = sum((one for i, one in enumerate(sent) if i != left_out), np.zeros(3))
            assert np.linalg.norm(whole - rest) <= most * (1 + 1e-9)


def test_clipping_is_over_the_whole_update_and_leaves_a_short_one() -> None:
    given = {"w": torch.tensor([3.0]), "b": torch.tensor([4.0])}
    assert {name: tensor.item() for name, tensor in clipped(given, 2.5).items()} == {"w": 1.5, "b": 2.0}
    assert {name: tensor.item() for name, tensor in clipped(given, 5.0).items()} == {"w": 3.0, "b": 4.0}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("defence", [DpLocal(z=0), DpFedAvg(z=0)])
def test_what_is_not_finite_cannot_be_clipped(defence: UpdateDefence, value: float) -> None:
    with pytest.raises(FedprintError, match=r"not finite cannot be clipped; lower federation\.lr"):
        defence.on_device(update(value), torch_rng(0))


# ---- top-k, quantise, sign -----------------------------------------------------------------------------------------

FEW_VALUES = st.lists(st.integers(-3, 3), min_size=1, max_size=30)


@given(first=FEW_VALUES, second=FEW_VALUES, share=st.floats(0.01, 0.99))
def test_top_k_keeps_exactly_the_largest_and_of_equal_ones_the_first(
    first: list[int], second: list[int], share: float
) -> None:
    given = {"a": torch.tensor(first).double(), "b": torch.tensor(second).double()}
    sent = TopK(share=share).on_device(given, torch_rng(0))
    assert flat(dict(sent)).tolist() == kept_by_hand(first + second, share)
    each = TopK(share=share, per_layer=True).on_device(given, torch_rng(0))
    assert flat(dict(each)).tolist() == kept_by_hand(first, share) + kept_by_hand(second, share)


def kept_by_hand(values: list[int], share: float) -> list[int]:
    k = max(1, round(share * len(values)))
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))
    return [value if i in order[:k] else 0 for i, value in enumerate(values)]


def test_top_k_counts_over_the_whole_update_or_per_layer() -> None:
    given = {"w": torch.full((10, 10), 5.0), "b": torch.full((100,), 1.0)}
    whole, each = (TopK(share=0.3, per_layer=per).on_device(given, torch_rng(0)) for per in (False, True))
    assert [int(tensor.count_nonzero()) for tensor in whole.values()] == [60, 0]
    assert [int(tensor.count_nonzero()) for tensor in each.values()] == [30, 30]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_quantise_sends_at_most_two_to_the_bits_levels_between_least_and_greatest(
    bits: int, dtype: torch.dtype
) -> None:
    given = trained(dtype)
    sent = Quantise(bits=bits).on_device(given, torch_rng(0))
    for name, tensor in given.items():
        levels = torch.unique(sent[name])
        assert 2 ** (bits - 1) < len(levels) <= 2**bits, "in the tails of 10,000 entries some levels stay empty"
        step = float(tensor.max() - tensor.min()) / (2**bits - 1)
        steps = (levels.double() - float(tensor.min())) / step
        torch.testing.assert_close(steps, steps.round(), atol=1e-4, rtol=0)
        assert float((sent[name] - tensor).abs().max()) <= step * (1 + 1e-4)


@pytest.mark.parametrize("bits", [1, 3])
def test_quantise_keeps_the_mean(bits: int) -> None:
    given = {"w": torch.tensor([-1.0, -0.7, 0.0, 0.123, 0.9, 2.0]).double()}
    draws = torch.stack([Quantise(bits=bits).on_device(given, torch_rng(seed))["w"] for seed in range(3000)])
    spread = draws.std(0) / 3000**0.5
    assert bool(((draws.mean(0) - given["w"]).abs() <= 5 * spread + 1e-12).all())
    assert float(spread.max()) > 0


def test_quantise_leaves_a_constant_layer() -> None:
    assert flat(dict(Quantise(bits=2).on_device(update(0.3), torch_rng(0)))).tolist() == flat(update(0.3)).tolist()


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_sign_keeps_signs_and_the_l1_norm_of_each_layer(zeros: float) -> None:
    given = {name: tensor * (torch.rand(tensor.shape) >= zeros) for name, tensor in trained(torch.float64).items()}
    sent = Sign().on_device(given, torch_rng(0))
    for name, tensor in given.items():
        assert torch.equal(sent[name].sign(), tensor.sign())
        assert float(sent[name].abs().sum()) == pytest.approx(float(tensor.abs().sum()), rel=1e-12)
        assert len(torch.unique(sent[name].abs())) == 1 + bool(zeros)


def test_sign_of_a_layer_without_any_change_is_no_change() -> None:
    assert flat(dict(Sign().on_device(update(0.0), torch_rng(0)))).tolist() == [0.0] * SIZE


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(TopK, {"share": 0}), (TopK, {"share": 1.1}), (Quantise, {"bits": 0}), (Quantise, {"bits": 33}),
     (DpLocal, {"z": -1}), (DpLocal, {"z": 1, "clip": 0}), (DpFedAvg, {"z": -1}), (DpFedAvg, {"z": [1, 2]}),
     (Noise, {"sigma": []}), (TopK, {"share": [0.5, 0]})],
)  # fmt: skip
def test_impossible_settings_are_refused(kind: type, settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings)) if len(settings) == 1 else "clip"):
        kind(**settings)
