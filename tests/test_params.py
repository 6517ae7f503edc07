"""Algebra on dicts of tensors, for any shapes and values."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedprint import params as algebra

SHAPES = st.lists(st.sampled_from([(1,), (4,), (2, 3), (2, 1, 3), ()]), min_size=1, max_size=4)
SCALES = st.sampled_from([1e-12, 1e-3, 1.0, 1e6])
SEEDS = st.integers(0, 2**32)


@st.composite
def updates(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    return drawn(draw(SHAPES), draw(SEEDS), draw(SCALES), dtype)


def drawn(shapes: list[tuple[int, ...]], seed: int, scale: float, dtype: torch.dtype) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {f"p{i}": scale * torch.randn(shape, generator=rng, dtype=dtype) for i, shape in enumerate(shapes)}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


@given(a=updates())
def test_unflatten_is_the_inverse_of_flatten(a: dict[str, Tensor]) -> None:
    vector = algebra.flatten(a)
    assert vector.shape == (sum(tensor.numel() for tensor in a.values()),)
    assert same(algebra.unflatten(vector, a), a)
    assert torch.equal(algebra.flatten(algebra.unflatten(vector, a)), vector)


def test_flatten_goes_in_the_order_of_the_dict() -> None:
    assert algebra.flatten({"b": torch.tensor([[1, 2], [3, 4]]), "a": torch.tensor(5)}).tolist() == [1, 2, 3, 4, 5]


def test_unflatten_refuses_a_vector_of_another_length() -> None:
    with pytest.raises(RuntimeError):
        algebra.unflatten(torch.zeros(5), {"a": torch.zeros(4)})


@given(a=updates())
def test_the_norm_is_that_of_the_one_long_vector(a: dict[str, Tensor]) -> None:
    assert algebra.norm(a) == pytest.approx(float(algebra.flatten(a).norm()), rel=1e-12)


def test_the_norm_is_summed_in_float64() -> None:
    assert algebra.norm({"a": torch.full((1000,), 1e25)}) == pytest.approx(1e25 * math.sqrt(1000), rel=1e-6)


@given(a=updates(), bound=st.floats(1e-6, 1e6))
def test_clip_is_never_longer_than_the_bound_keeps_the_direction_and_leaves_the_short_alone(
    a: dict[str, Tensor], bound: float
) -> None:
    clipped, before = algebra.clip(a, bound), algebra.norm(a)
    assert algebra.norm(clipped) <= bound * (1 + 1e-12)
    if before <= bound:
        assert same(clipped, a)
    else:
        assert algebra.norm(clipped) == pytest.approx(bound, rel=1e-12)
        assert all(torch.allclose(clipped[n] * (before / bound), a[n], rtol=1e-12, atol=0) for n in a)


@given(a=updates(dtype=torch.float32), bound=st.floats(1e-3, 1e3))
def test_clip_keeps_the_bound_in_float32_up_to_rounding(a: dict[str, Tensor], bound: float) -> None:
    assert algebra.norm(algebra.clip(a, bound)) <= bound * (1 + 1e-6)


def test_clip_reads_the_whole_dict_as_one_vector() -> None:
    clipped = algebra.clip({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, 1.0)
    assert [float(clipped["a"]), float(clipped["b"])] == pytest.approx([0.6, 0.8])


@given(
    shapes=SHAPES,
    seeds=st.lists(SEEDS, min_size=1, max_size=5),
    weights=st.lists(st.integers(1, 500), min_size=5, max_size=5),
)
def test_a_weighted_mean_lies_between_its_updates_and_keeps_a_common_one(
    shapes: list[tuple[int, ...]], seeds: list[int], weights: list[int]
) -> None:
    several = [drawn(shapes, seed, 1.0, torch.float64) for seed in seeds]
    mean = algebra.weighted_mean(several, weights[: len(seeds)])
    for name in mean:
        stack = torch.stack([update[name] for update in several])
        assert bool((mean[name] >= stack.amin(0) - 1e-12).all())
        assert bool((mean[name] <= stack.amax(0) + 1e-12).all())
    assert algebra.norm(mean) <= max(map(algebra.norm, several)) + 1e-12
    alike = algebra.weighted_mean([several[0]] * len(seeds), weights[: len(seeds)])
    assert all(torch.allclose(alike[name], several[0][name], rtol=1e-12, atol=1e-15) for name in alike)


def test_a_weighted_mean_weights_by_share_and_not_by_scale() -> None:
    several = [{"w": torch.tensor([1.0])}, {"w": torch.tensor([5.0])}]
    assert float(algebra.weighted_mean(several, [3, 1])["w"]) == pytest.approx(2.0)
    assert float(algebra.weighted_mean(iter(several), [30, 10])["w"]) == pytest.approx(2.0)


def test_a_weighted_mean_changes_none_of_its_updates_and_wants_a_weight_for_each() -> None:
    several = [{"w": torch.ones(3)}, {"w": torch.zeros(3)}]
    algebra.weighted_mean(several, [1, 1])["w"].add_(7)
    assert several[0]["w"].tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="shorter"):
        algebra.weighted_mean(several, [1])


@given(a=updates(), factor=st.floats(-10, 10))
def test_add_and_scale_go_entry_by_entry(a: dict[str, Tensor], factor: float) -> None:
    assert same(algebra.scale(a, factor), {name: factor * tensor for name, tensor in a.items()})
    assert same(algebra.add(a, a, factor), {name: tensor + factor * tensor for name, tensor in a.items()})
    assert algebra.norm(algebra.add(a, a, -1.0)) == 0


NAMES = ("conv1.weight", "conv1.bias", "conv10.weight", "head.weight")


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        (None, NAMES),
        (["conv1"], ("conv1.weight", "conv1.bias")),
        (["head", "conv1.bias"], ("conv1.bias", "head.weight")),
        (["con"], ()),
        ([], ()),
    ],
)
def test_select_takes_names_and_dotted_prefixes(layers: list[str] | None, kept: tuple[str, ...]) -> None:
    assert algebra.select(NAMES, layers) == kept
