"""Oriented gradients: directions, cells, what is taken off, and the linear model that reads them."""

from __future__ import annotations

import math

import pytest
import torch

from fedprint.data.examples import PooledExamples
from fedprint.models import networks
from fedprint.models.components import OrientedGradients, SmallCnn
from fedprint.models.features.gradients import oriented_gradients
from fedprint.models.inputs import model_input, model_users
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import User


def ramp(degrees: float, size: int = 24) -> torch.Tensor:
    """An image (1, 1, size, size) that brightens evenly in one direction, x to the right and y down."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    angle = math.radians(degrees)
    return ((math.cos(angle) * x + math.sin(angle) * y) / (2 * size) + 0.5)[None, None].float()


@pytest.mark.parametrize("direction", range(8))
def test_a_ramp_votes_for_its_own_direction_in_the_inner_cells(direction: int) -> None:
    features = oriented_gradients(ramp(45 * direction), 8, 6).view(8, 6, 6)
    assert (features[:, 1:-1, 1:-1].argmax(0) == direction).all()


def test_a_direction_between_two_is_shared_and_opposite_ones_differ() -> None:
    between, right, left = (
        oriented_gradients(ramp(degrees), 8, 6).view(8, 6, 6)[:, 1:-1, 1:-1] for degrees in (22.5, 0, 180)
    )
    assert torch.allclose(between[0], between[1], atol=1e-4) and (between[0] > between[2:].amax(0)).all()
    assert (right * left).sum() < 0


def test_features_have_norm_one_no_mean_over_directions_and_no_scale() -> None:
    images = torch.rand(5, 1, 28, 28, generator=torch_rng(0, "images"))
    features = oriented_gradients(images, 8, 7)
    assert features.shape == (5, 8 * 49)
    assert torch.allclose(features.norm(dim=1), torch.ones(5))
    assert torch.allclose(features.view(5, 8, 49).mean(1), torch.zeros(5, 49), atol=1e-6)
    fainter = oriented_gradients(images * 0.6, 8, 7)
    assert (features * fainter).sum(1).min() > 0.99
    assert torch.equal(oriented_gradients(torch.full((2, 1, 28, 28), 0.0), 8, 7), torch.zeros(2, 392))


def test_an_image_does_not_depend_on_those_beside_it_and_channels_are_averaged() -> None:
    images = torch.rand(1030, 1, 10, 10, generator=torch_rng(1, "images"))
    together = oriented_gradients(images, 4, 3)
    assert torch.allclose(together[1025:], oriented_gradients(images[1025:], 4, 3), atol=1e-5)
    assert torch.allclose(oriented_gradients(images.expand(-1, 3, -1, -1), 4, 3), together, atol=1e-5)


def test_the_model_is_linear_without_a_bias_and_starts_from_zero() -> None:
    settings = OrientedGradients(orientations=4, cells=3)
    model = build_network(settings, (36,), 10, False)
    model.reset(torch_rng(0, "model"))
    assert {name: tuple(p.shape) for name, p in model.public_parameters().items()} == {"head.weight": (10, 36)}
    batch = {"x": torch.rand(3, 36), "y": torch.tensor([0, 1, 9])}
    assert torch.allclose(model(batch), torch.full((3,), math.log(10)))


def test_features_are_computed_once_for_a_pool_and_only_where_the_model_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = torch.randint(0, 256, (6, 1, 12, 12), dtype=torch.uint8, generator=torch_rng(2, "images"))
    pool = {"x": images, "y": torch.arange(6)}
    rows = [torch.tensor([0, 1, 1]), torch.tensor([5, 0])]
    users = [User(user_id=i, examples=PooledExamples(pool, index, {})) for i, index in enumerate(rows)]
    calls = []
    monkeypatch.setattr(
        networks, "oriented_gradients", lambda x, *how: calls.append(len(x)) or oriented_gradients(x, *how)
    )
    settings = OrientedGradients(orientations=4, cells=3)
    converted = model_users(users, torch.float32, model=settings)
    assert calls == [6]
    for user, index in zip(converted, rows, strict=True):
        alone = model_input({name: column[index] for name, column in pool.items()}, torch.float32, model=settings)
        assert torch.allclose(user.examples["x"], alone["x"], atol=1e-6)
        assert torch.equal(user.examples["y"], index)
    plain = model_users(users, torch.float32, model=SmallCnn())
    assert plain[0].examples["x"].shape == (3, 1, 12, 12)
