"""Defences as plain functions: the components of fedprint.defences on NumPy's and PyTorch's arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fedprint import protect
from fedprint.defences.on_data import RandAug
from fedprint.defences.on_update import DpLocal, Noise, Quantise, TopK
from fedprint.errors import FedprintError
from fedprint.rng import torch_rng

UPDATE = {"a.weight": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), "a.bias": torch.arange(4.0)}
SAME = [
    (partial(protect.noise, sigma=0.5), Noise(sigma=0.5)),
    (partial(protect.clipped_noise, clip=1.0, z=0.1), DpLocal(clip=1.0, z=0.1)),
    (partial(protect.quantised, bits=1), Quantise(bits=1)),
    (partial(protect.sparse, share=0.25), TopK(share=0.25)),
]
NAMES = [type(component).__name__ for _, component in SAME]


@pytest.mark.parametrize(("function", "component"), SAME, ids=NAMES)
def test_a_function_does_what_its_component_does(function: Callable[..., Any], component: Any) -> None:
    expected = component.on_device(UPDATE, torch_rng(7, "protect"))
    sent = function(UPDATE, seed=7)
    assert all(torch.equal(sent[name], expected[name]) for name in UPDATE)
    assert any(not torch.equal(sent[name], UPDATE[name]) for name in UPDATE)


@pytest.mark.parametrize(("function", "component"), SAME, ids=NAMES)
def test_arrays_come_back_as_they_went_in(function: Callable[..., Any], component: Any) -> None:
    arrays = {name: tensor.numpy() for name, tensor in UPDATE.items()}
    before = {name: array.copy() for name, array in arrays.items()}
    tensors, named, listed = function(UPDATE, seed=7), function(arrays, seed=7), function([*arrays.values()], seed=7)
    for position, name in enumerate(arrays):
        assert named[name].dtype == np.float32 and named[name].shape == arrays[name].shape
        np.testing.assert_array_equal(named[name], tensors[name].numpy())
        np.testing.assert_array_equal(listed[position], named[name])
        np.testing.assert_array_equal(arrays[name], before[name])  # the client's own array is left alone
    assert isinstance(function(arrays["a.bias"], seed=7), np.ndarray)


def test_counts_are_left_as_they_are() -> None:
    sent = protect.noise({"weight": np.zeros(3, np.float32), "batches": np.array(7)}, sigma=1.0)
    assert sent["batches"] == 7 and sent["weight"].any()
    with pytest.raises(FedprintError, match="no array of real numbers"):
        protect.noise({"batches": np.array(7)}, sigma=1.0)


def test_without_a_seed_every_call_draws_fresh_noise() -> None:
    zero = np.zeros(5, np.float32)
    assert (protect.noise(zero, sigma=1.0) != protect.noise(zero, sigma=1.0)).any()


def _examples(n: int, value: float) -> dict[str, Any]:
    return {"x": np.full((n, 1, 4, 4), value, np.float32), "y": np.full(n, int(value))}


def test_augmentation_adds_background_and_replacement_keeps_the_number() -> None:
    own, public = _examples(10, 1), _examples(50, 2)
    added = protect.rand_aug(own, public, alpha=0.5, seed=3)
    assert added["y"].tolist() == [1] * 10 + [2] * 5 and added["x"].dtype == np.float32
    tensors = [{name: torch.from_numpy(column) for name, column in part.items()} for part in (own, public)]
    expected = RandAug(alpha=0.5).on_data(*tensors, torch_rng(3, "protect"))
    np.testing.assert_array_equal(added["x"], expected["x"].numpy())
    assert sorted(protect.bkg_repl(own, public, alpha=0.3, seed=3)["y"].tolist()) == [1] * 7 + [2] * 3


def test_mm_aug_adds_examples_of_one_mode() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.zeros((20, 4, 4)), np.ones((20, 4, 4))]) + 0.01 * rng.normal(size=(40, 4, 4))
    found = protect.modes(x, clusters=2)
    assert len(set(found[:20])) == len(set(found[20:])) == 1 and found[0] != found[20]
    np.testing.assert_array_equal(protect.modes(x[:, None], clusters=2), found)
    public = {"x": x[:, None].astype(np.float32), "y": np.arange(40), "cluster": found}
    added = protect.mm_aug(_examples(5, 1), public, alpha=2, seed=1)["y"][5:]
    assert len(added) == 10 and len({found[position] for position in added}) == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: protect.noise(UPDATE, sigma=-1), "Noise: sigma is -1"),
        (lambda: protect.sparse(UPDATE, share=0), "TopK: share is 0"),
        (lambda: protect.quantised(UPDATE, bits=40), "Quantise: bits is 40"),
        (lambda: protect.rand_aug(_examples(5, 1), {}, alpha=1), "no background examples"),
        (lambda: protect.mm_aug(_examples(5, 1), _examples(5, 2), alpha=1), "no column 'cluster'"),
        (lambda: protect.rand_aug(_examples(5, 1), {**_examples(5, 2), "x": np.zeros((5, 9))}, alpha=1), "alike"),
        (lambda: protect.rand_aug({"images": np.zeros(3)}, _examples(5, 2), alpha=1), "no column 'x'"),
        (lambda: protect.modes(np.zeros(3), clusters=2), "shape"),
    ],
)
def test_a_mistake_is_named_in_one_line(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(FedprintError, match=said) as error:
        call()
    assert "\n" not in str(error.value)
