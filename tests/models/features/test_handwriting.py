"""Features of handwriting: images are put upright, and what all drawings share is taken off."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedprint.models.components import HandwritingGradients
from fedprint.models.features.gradients import oriented_gradients
from fedprint.models.features.handwriting import handwriting_gradients, upright
from fedprint.models.features.strokes import random_strokes
from fedprint.models.inputs import model_input
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng


def bar(slant: float, shift: float = 0.0, size: int = 28) -> Tensor:
    """A bar (1, 1, size, size) from top to bottom that leans by ``slant`` columns a row."""
    y, x = torch.meshgrid(torch.arange(size) - (size - 1) / 2, torch.arange(size) - (size - 1) / 2, indexing="ij")
    ink = torch.exp(-((x - shift - slant * y) ** 2) / 4) * (y.abs() < 9)
    return ink[None, None]


def strokes(count: int, seed: int = 1) -> Tensor:
    return random_strokes(count, 28, 28, torch_rng(seed, "test strokes"))


@pytest.mark.parametrize("slant", [-0.5, -0.2, 0.3])
def test_a_leaning_bar_and_a_shifted_bar_become_the_straight_one(slant: float) -> None:
    straight = upright(bar(0.0))
    assert (upright(bar(slant)) - straight).abs().mean() < 0.1 * (bar(slant) - bar(0.0)).abs().mean()
    assert (upright(bar(0.0, shift=3.0)) - straight).abs().mean() < 0.01


def test_an_empty_image_stays_empty_and_no_image_depends_on_those_beside_it() -> None:
    assert torch.equal(upright(torch.zeros(2, 3, 20, 24)), torch.zeros(2, 1, 20, 24))
    images = strokes(5)
    assert torch.allclose(handwriting_gradients(images, 8, 7)[2:], handwriting_gradients(images[2:], 8, 7), atol=1e-5)


def test_features_have_norm_one_and_what_drawings_share_is_mostly_gone() -> None:
    images = strokes(400)
    ours, before = handwriting_gradients(images, 8, 7), oriented_gradients(images, 8, 7)
    assert ours.shape == (400, 392) and torch.allclose(ours.norm(dim=1), torch.ones(400))
    assert ours.mean(0).norm() < 0.3 * before.mean(0).norm()


def test_strokes_are_centred_ink_that_the_generator_decides() -> None:
    images = strokes(60)
    assert images.shape == (60, 1, 28, 28) and images.min() >= 0 and images.max() == 1
    assert 0.03 < images.mean() < 0.3
    assert torch.equal(images, strokes(60)) and not torch.equal(images, strokes(60, seed=2))


def test_the_model_reads_them() -> None:
    settings = HandwritingGradients(orientations=4, cells=3)
    images = (255 * strokes(3)).to(torch.uint8)
    x = model_input({"x": images, "y": torch.arange(3)}, torch.float32, model=settings)["x"]
    assert torch.allclose(x, handwriting_gradients(images.float() / 255, 4, 3))
    model = build_network(settings, (36,), 10, False)
    assert {name: tuple(p.shape) for name, p in model.public_parameters().items()} == {"head.weight": (10, 36)}
