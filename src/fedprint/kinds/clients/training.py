"""One federation of a sweep over the number of clients: what its models get right of the test images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedprint.data.sources.labelled_images import LabelledSet
from fedprint.defences.points import defend_data
from fedprint.federation.backends import fastest, open_backend, trial
from fedprint.federation.client_state import ClientMemory
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.unrecorded import train_alone, train_together
from fedprint.federation.vectorised import default_block
from fedprint.kinds.clients.config import SweepSettings
from fedprint.kinds.federation.building.federation import parameters_of
from fedprint.kinds.images import network_of
from fedprint.lab.gpus import torch_devices
from fedprint.models.base import FedModule
from fedprint.models.dual_head import DualHead
from fedprint.rng import seed_for, torch_rng
from fedprint.types import ClientJob, Device, Doubles, Params

BATCH = 500


def trained(
    settings: SweepSettings,
    images: LabelledSet,
    backend: str,
    on_round: Callable[[int, float], None] = lambda t, loss: None,
    device: str = "cpu",
) -> tuple[Doubles, Params | None]:
    """Train on ``images`` and return, for each test image, the share of the models that get it right.

    That is of one model, which is returned too, or of each client's own. ``on_round`` takes each round and the mean
    loss of the one model. Clients train on a ``device`` (cpu, cuda). Raises FedprintError when training diverges.
    """
    seed = seed_for(settings.seed, "federation")
    model = build_model(settings, images, seed).to(device)
    defences = settings.method.on_updates
    devices = defend_data(devices_of(settings, images, device), defences, {}, seed)
    plan = FederationPlan(
        rounds=settings.training.rounds,
        cohort=len(devices),
        training=settings.training.local(settings.method.noise),
        lr_schedule=settings.training.lr_schedule,
        seed=seed,
        aggregation=settings.training.aggregation,
    )
    initial = parameters_of(model)
    private = (
        ClientMemory(lambda device_id: model.draw_private(torch_rng(seed, "secret-head", device_id)))
        if isinstance(model, DualHead)
        else None
    )
    with open_backend(backend, model, torch_devices(device)) as executor:
        if settings.method.alone:
            # A device at a time, so the test set is scored before the next one's training moves the shared module.
            alone = train_alone(devices, plan, executor, initial, private)
            return np.asarray(np.stack([_hits(model, params, images, device) for _, params in alone]).mean(0)), None
        params = train_together(devices, plan, executor, initial, defences, private, on_round)
    return _hits(model, params, images, device), params


def chosen_executor(settings: SweepSettings, images: LabelledSet, device: str) -> str:
    """Return the executor that trains a few clients fastest on a ``device`` of this machine."""
    model = build_model(settings, images, 0).to(device)
    few = settings.model_copy(update={"clients": default_block(device, model)})
    params = parameters_of(model)
    jobs = [ClientJob(device_id=d.device_id, examples=d.examples, seed=0) for d in devices_of(few, images, device)]
    return fastest(trial(model, jobs, params, settings.training.local()))


def build_model(settings: SweepSettings, images: LabelledSet, seed: int) -> FedModule:
    """Return the network that clients train: with a second head where the mechanism is a secret one."""
    model = network_of(settings.network, images.shape, len(images.class_names), settings.method.defences)
    model.reset(torch_rng(seed, "model"))
    return model


def devices_of(settings: SweepSettings, images: LabelledSet, device: str) -> list[Device]:
    """Return the clients with their parts of the images."""
    parts = settings.partition.rows(images.y.numpy(), settings.clients, settings.seed)
    return [
        Device(
            device_id=f"client-{number:04d}",
            user_id=number,
            role="anonymous",
            examples={"x": images.x[rows].to(device), "y": images.y[rows].to(device)},
        )
        for number, rows in enumerate(map(torch.from_numpy, parts))
    ]


@torch.no_grad()
def _hits(model: FedModule, params: Params, images: LabelledSet, device: str) -> Doubles:
    """Return 1 for each test image that the model of ``params`` gets right, else 0."""
    for name, parameter in model.public_parameters().items():
        parameter.copy_(params[name])
    parts: Sequence[Tensor] = [
        model.per_example_utility({"x": x.to(device), "y": y.to(device)})
        for x, y in zip(torch.split(images.test_x, BATCH), torch.split(images.test_y, BATCH), strict=True)
    ]
    return torch.cat(list(parts)).cpu().numpy().astype(np.float64)
