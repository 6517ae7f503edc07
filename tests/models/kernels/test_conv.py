"""Hand-written gradients of a stack of small convolutional networks: those of autograd, one network at a time."""

from __future__ import annotations

import pytest
import torch

from fedprint.federation.client import autograd
from fedprint.models.base import initialise
from fedprint.models.components import SmallCnn
from fedprint.models.kernels.dense import whole
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import LocalTraining

CLASSES, NETWORKS, ROWS = 7, 3, 9
COUNTED = (ROWS, 4, 1)
"""Rows of each network that count; the others are padding."""


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("hidden", [0, 16])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 10, 13)])
def test_the_gradients_are_those_of_autograd(
    shape: tuple[int, ...], hidden: int, centred: bool, multi_label: bool, dtype: torch.dtype, most: float
) -> None:
    models = [
        build_network(SmallCnn(hidden=hidden, centred=centred), shape, CLASSES, multi_label) for _ in range(NETWORKS)
    ]
    for number, model in enumerate(models):
        initialise(model, torch_rng(number, "model"), model.initial_gain)
        model.to(dtype=dtype)
    rng = torch.Generator().manual_seed(0)
    y = torch.randint(2, (NETWORKS, ROWS, CLASSES), generator=rng).to(dtype)
    batch = {
        "x": torch.rand(NETWORKS, ROWS, *shape, generator=rng, dtype=dtype),
        "y": y if multi_label else torch.randint(CLASSES, (NETWORKS, ROWS), generator=rng),
    }
    mask = torch.stack([torch.arange(ROWS) < n for n in COUNTED]).to(dtype)
    names = [name for name, _ in models[0].named_parameters()]
    stacked = {name: torch.stack([model.get_parameter(name).detach() for model in models]) for name in names}
    by_hand = models[0].stacked_gradients()
    assert by_hand is not None
    gradients, losses = by_hand(stacked, batch, mask)
    assert set(gradients) == set(names)
    for k, (model, n) in enumerate(zip(models, COUNTED, strict=True)):
        alone = {column: values[k, :n] for column, values in batch.items()}
        loss, known = autograd(model, list(model.parameters()), alone, LocalTraining(epochs=1, batch_size=ROWS, lr=0.1))
        torch.testing.assert_close(losses[k], loss, atol=most, rtol=0)
        for name, right in zip(names, known, strict=True):
            torch.testing.assert_close(whole(gradients[name])[k], right, atol=most, rtol=0)
