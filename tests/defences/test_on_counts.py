"""Defences of the number of examples that a device names beside its update."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedprint.defences.on_counts import CoarseCounts, SameSize
from fedprint.defences.points import defend_count
from fedprint.rng import torch_rng
from fedprint.types import Examples


def own(n: int) -> Examples:
    ids = torch.arange(n)
    return {"x": ids.float()[:, None], "y": ids, "t": ids}


@given(st.integers(1, 10**9), st.floats(1.01, 100))
def test_a_coarse_count_is_within_half_a_step_of_the_true_one(count: int, base: float) -> None:
    named = CoarseCounts(base=base).on_count(count)
    assert named >= 1
    assert (count - 0.5) / base**0.51 <= named <= (count + 0.5) * base**0.51 + 0.5


def test_counts_are_few_or_one() -> None:
    named = {CoarseCounts(base=2).on_count(count) for count in range(1, 1000)}
    assert named == {2**k for k in range(11)}
    assert {CoarseCounts(base=None).on_count(count) for count in range(1, 1000)} == {1}
    assert defend_count(100, [SameSize(examples=7), CoarseCounts(base=10)]) == 100
    assert defend_count(200, [CoarseCounts(base=10)]) == 100


@pytest.mark.parametrize("n", [1, 7, 20, 33])
def test_every_device_trains_on_as_many_examples_each_about_as_often(n: int) -> None:
    kept = SameSize(examples=20).on_data(own(n), {}, torch_rng(0))
    assert {len(column) for column in kept.values()} == {20}
    assert torch.equal(kept["x"][:, 0].long(), kept["y"]) and torch.equal(kept["t"], kept["y"])
    times = torch.bincount(kept["y"], minlength=n)
    assert times.max() - times.min() <= 1, "each as often as another, but for the remainder"


def test_which_examples_are_left_out_is_the_devices_own_draw() -> None:
    one, again, other = (SameSize(examples=5).on_data(own(50), {}, torch_rng(seed))["y"] for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
