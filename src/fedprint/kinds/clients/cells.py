"""One federation of a sweep over the number of clients: what its models get right of the test images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedprint.data.labelled_images import LabelledSet
from fedprint.data.locate import data_root
from fedprint.defences.points import defend_data
from fedprint.defences.secret_head import secret_head
from fedprint.federation.backends import best_device, make_backend
from fedprint.federation.client_state import ClientMemory
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.standalone import train_alone
from fedprint.federation.together import train_together
from fedprint.kinds.clients.config import Cell
from fedprint.kinds.plane.point_keys import source_digest
from fedprint.kinds.workspace import find_root
from fedprint.models.base import FedModule
from fedprint.models.dual_head import DualHead
from fedprint.rng import seed_for, torch_rng
from fedprint.types import Device, Params

BATCH = 500

_SOURCES = tuple(
    sorted(
        f"src/fedprint/{name}"
        for name in (
            "rng.py", "params.py", "data/labelled_images.py", "data/partition.py", "data/examples.py", "defences",
            "models", "federation", "pipeline/clients/cells.py", "pipeline/clients/config.py",
        )
    )
)  # fmt: skip
"""The code that a cell's numbers come from."""


def result_of(cell: Cell) -> list[float]:
    """Return, for each test image, the share of the models that get it right: of one model, or of each client's own.

    Cached in work/clients under all that it depends on. Raises FedprintError when training diverges.
    """
    path = _cache(cell)
    if path.is_file():
        return [float(value) for value in json.loads(path.read_text())]
    torch.set_num_threads(1)
    hits = [round(float(value), 6) for value in trained_hits(cell, cell.data.load(data_root(None), cell.data_seed))]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{seed_for(0, cell.label)}.tmp")
    partial.write_text(json.dumps(hits))
    partial.replace(path)
    return hits


def trained_hits(cell: Cell, images: LabelledSet) -> np.ndarray:
    """Train the cell on ``images`` and return the shares (test images,)."""
    place, seed = best_device(), seed_for(cell.seed, "federation")
    model = _model(cell, images, seed).to(place)
    defences = cell.method.on_updates
    devices = defend_data(_devices(cell, images, place), defences, {}, seed)
    plan = FederationPlan(
        rounds=cell.training.rounds,
        cohort=len(devices),
        training=cell.training.local(cell.method.noise),
        lr_schedule=cell.training.lr_schedule,
        seed=seed,
        aggregation=cell.training.aggregation,
    )
    initial = {name: p.detach().clone() for name, p in model.public_parameters().items()}
    private = (
        ClientMemory(lambda device_id: model.draw_private(torch_rng(seed, "secret-head", device_id)))
        if isinstance(model, DualHead)
        else None
    )
    backend = make_backend("sequential", model)
    if cell.method.alone:
        # A device at a time, so the test set is scored before the next one's training moves the shared module.
        alone = train_alone(devices, plan, backend, initial, private)
        return np.asarray(np.stack([_hits(model, params, images, place) for _, params in alone]).mean(0))
    return _hits(model, train_together(devices, plan, backend, initial, defences, private), images, place)


def _model(cell: Cell, images: LabelledSet, seed: int) -> FedModule:
    model = cell.network.build(images.shape, len(images.class_names), False)
    if (secret := secret_head(cell.method.defences)) is not None:
        model = DualHead(model, bits=secret.bits, alpha1=secret.alpha1, margin=secret.margin)
    model.reset(torch_rng(seed, "model"))
    return model


def _devices(cell: Cell, images: LabelledSet, place: str) -> list[Device]:
    hands = cell.partition.rows(images.y.numpy(), cell.clients, cell.seed)
    return [
        Device(
            device_id=f"client-{number:04d}",
            user_id=number,
            role="anonymous",
            examples={"x": images.x[rows].to(place), "y": images.y[rows].to(place)},
        )
        for number, rows in enumerate(map(torch.from_numpy, hands))
    ]


@torch.no_grad()
def _hits(model: FedModule, params: Params, images: LabelledSet, place: str) -> np.ndarray:
    """Return 1 for each test image that the model of ``params`` gets right, else 0."""
    for name, parameter in model.public_parameters().items():
        parameter.copy_(params[name])
    found: Sequence[Tensor] = [
        model.per_example_utility({"x": x.to(place), "y": y.to(place)})
        for x, y in zip(torch.split(images.test_x, BATCH), torch.split(images.test_y, BATCH), strict=True)
    ]
    return torch.cat(list(found)).cpu().numpy().astype(np.float64)


def _cache(cell: Cell) -> Path:
    key = cell.digest(cell.data.fingerprint(data_root(None)), source_digest(_SOURCES))
    return find_root() / "work" / "clients" / f"{key}.json"
