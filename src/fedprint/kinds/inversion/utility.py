"""Acc(m): the test accuracy that a federation reaches under a mechanism (papers.md 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedprint.component import Component
from fedprint.data.labelled_images import LabelledImages, LabelledSet
from fedprint.defences.points import defend_data
from fedprint.federation.gradient_rounds import GradientPlan, train_on_gradients
from fedprint.kinds.federation.build import load_parameters, parameters_of
from fedprint.kinds.inversion.config import Mechanic, Network, TrainingConfig
from fedprint.kinds.inversion.networks import client, images_of, network_of
from fedprint.models.base import FedModule
from fedprint.rng import seed_for, torch_rng
from fedprint.types import Device, Doubles, Params


class UtilityCell(Component):
    """A federation under one mechanism, the ``run``-th. Its accuracy depends on these settings and on nothing else."""

    data: LabelledImages
    network: Network
    training: TrainingConfig
    defences: tuple[Mechanic, ...]
    seed: int
    run: int = 0

    def train(self) -> dict[str, Tensor]:
        """Return the public parameters that the federation ends with."""
        torch.set_num_threads(1)  # the order of additions, and so the bits, must not depend on the machine's cores
        images, seed = images_of(self.data, self.seed), seed_for(self.seed, "federation", self.run)
        model = network_of(self.network, images.shape, len(images.class_names), self.defences)
        model.reset(torch_rng(seed, "model"))
        training = self.training
        plan = GradientPlan(
            rounds=training.rounds,
            batch_size=training.batch_size,
            lr=training.lr,
            seed=seed,
            aggregation=training.aggregation,
        )
        devices = defend_data(iid_clients(images, training.clients, seed), self.defences, {}, seed)
        return train_on_gradients(model, parameters_of(model), devices, self.defences, plan)

    def model(self, params: Params) -> FedModule:
        """Return the network with these public parameters."""
        images = images_of(self.data, self.seed)
        model = network_of(self.network, images.shape, len(images.class_names), self.defences)
        load_parameters(model, params)
        return model

    def hits(self, params: Params) -> Doubles:
        """Return which test images (n,) are classified right: 1 or 0."""
        images = images_of(self.data, self.seed)
        return hits(self.model(params), images.test_x, images.test_y)


def iid_clients(images: LabelledSet, clients: int, seed: int) -> Sequence[Device]:
    """Return the training images dealt at random to ``clients`` of equal size, give or take one image."""
    order = torch.randperm(len(images.y), generator=torch_rng(seed, "iid"))
    parts = torch.tensor_split(order, clients)
    return [client("client", place, images.x[part], images.y[part]) for place, part in enumerate(parts)]


@torch.no_grad()
def hits(model: FedModule, x: Tensor, y: Tensor, batch: int = 500) -> Doubles:
    """Return which of the images (n, c, h, w) with labels (n,) the model classifies right."""
    parts = zip(torch.split(x, batch), torch.split(y, batch), strict=True)
    return torch.cat([model.per_example_utility({"x": x, "y": y}) for x, y in parts]).double().numpy()
