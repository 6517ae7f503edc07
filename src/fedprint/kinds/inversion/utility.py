"""Acc(m): the test accuracy that a federation reaches under a mechanism (papers.md 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedprint.data.sources.labelled_images import LabelledSet
from fedprint.defences.points import defend_data
from fedprint.federation.gradient_rounds import GradientPlan, train_on_gradients
from fedprint.kinds.federation.building.federation import load_parameters, parameters_of
from fedprint.kinds.images import client, network_of
from fedprint.kinds.inversion.settings import AccuracySettings
from fedprint.models.base import FedModule
from fedprint.rng import seed_for, torch_rng
from fedprint.types import Device, Doubles, Params


def train(
    settings: AccuracySettings,
    images: LabelledSet,
    on_round: Callable[[int, float], None] = lambda t, loss: None,
    device: str = "cpu",
) -> dict[str, Tensor]:
    """Train on a ``device`` (cpu, cuda) and return, on the CPU, the public parameters that the federation ends with.

    ``on_round`` takes each round and its mean loss.
    """
    seed = seed_for(settings.seed, "federation", settings.run)
    model = _network(settings, images)
    model.reset(torch_rng(seed, "model"))
    model.to(device)
    training = settings.training
    plan = GradientPlan(
        rounds=training.rounds,
        batch_size=training.batch_size,
        lr=training.lr,
        seed=seed,
        aggregation=training.aggregation,
    )
    devices = defend_data(iid_clients(images, training.clients, seed, device), settings.defences, {}, seed)
    params = train_on_gradients(model, parameters_of(model), devices, settings.defences, plan, on_round)
    return {name: tensor.cpu() for name, tensor in params.items()}


def trained_model(settings: AccuracySettings, params: Params, images: LabelledSet) -> FedModule:
    """Return the network with these public parameters."""
    model = _network(settings, images)
    load_parameters(model, params)
    return model


def model_hits(settings: AccuracySettings, params: Params, images: LabelledSet) -> Doubles:
    """Return which test images (n,) are classified right: 1 or 0."""
    return hits(trained_model(settings, params, images), images.test_x, images.test_y)


def _network(settings: AccuracySettings, images: LabelledSet) -> FedModule:
    return network_of(settings.network, images.shape, len(images.class_names), settings.defences)


def iid_clients(images: LabelledSet, clients: int, seed: int, device: str = "cpu") -> Sequence[Device]:
    """Return the training images dealt at random to ``clients`` of equal size, give or take one image."""
    order = torch.randperm(len(images.y), generator=torch_rng(seed, "iid"))
    parts = torch.tensor_split(order, clients)
    x, y = images.x.to(device), images.y.to(device)
    return [client("client", number, x[part], y[part]) for number, part in enumerate(parts)]


@torch.no_grad()
def hits(model: FedModule, x: Tensor, y: Tensor, batch: int = 500) -> Doubles:
    """Return which of the images (n, c, h, w) with labels (n,) the model classifies right."""
    parts = zip(torch.split(x, batch), torch.split(y, batch), strict=True)
    return torch.cat([model.per_example_utility({"x": x, "y": y}) for x, y in parts]).double().numpy()
