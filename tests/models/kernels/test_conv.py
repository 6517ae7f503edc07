"""Hand-written gradients of the small convolutional network: those of autograd, bit for bit."""

from __future__ import annotations

import pytest
import torch

from fedprint.federation.client import autograd
from fedprint.models.base import initialise
from fedprint.models.components import SmallCnn
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import LocalTraining

CLASSES, ROWS = 7, 9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("hidden", [0, 16])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 10, 13)])
def test_the_arithmetic_is_that_of_autograd(
    shape: tuple[int, ...], hidden: int, centred: bool, multi_label: bool, dtype: torch.dtype
) -> None:
    model = build_network(SmallCnn(hidden=hidden, centred=centred), shape, CLASSES, multi_label)
    initialise(model, torch_rng(0, "model"), model.initial_gain)
    model.to(dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
    rng = torch.Generator().manual_seed(0)
    y = torch.randint(2, (ROWS, CLASSES), generator=rng).to(dtype)
    batch = {
        "x": torch.rand(ROWS, *shape, generator=rng, dtype=dtype),
        "y": y if multi_label else torch.randint(CLASSES, (ROWS,), generator=rng),
    }
    parameters, by_hand = list(model.parameters()), model.conv_gradients()
    assert by_hand is not None
    loss, gradients = by_hand(parameters, batch)
    expected, known = autograd(model, parameters, batch, LocalTraining(epochs=1, batch_size=ROWS, lr=0.1))
    assert torch.equal(loss, expected)
    assert all(torch.equal(found, right) for found, right in zip(gradients, known, strict=True))
