"""The costs of a sweep over the number of clients before it runs: one client's epoch, multiplied."""

from __future__ import annotations

import time
from math import prod

import torch

from fedprint.federation.backends import make_backend
from fedprint.kinds.base import Costs
from fedprint.kinds.clients.config import ClientsExperiment
from fedprint.kinds.clients.training import build_model, devices_of
from fedprint.kinds.federation.building.federation import parameters_of
from fedprint.kinds.federation.plan import PROCESS_BYTES
from fedprint.kinds.images import loaded
from fedprint.types import ClientJob


def costs_of(experiment: ClientsExperiment, device: str) -> Costs:
    """Time one client of the first federation, and multiply."""
    torch.set_num_threads(1)
    config, federations = experiment.config, experiment.federations
    images, plain = loaded(config.data, config.seeds[0]), federations[0]
    model = build_model(plain, images, 0).to(device)
    params = parameters_of(model)
    client = devices_of(plain, images, device)[0]
    job = ClientJob(device_id=client.device_id, examples=client.examples, seed=0)
    backend = make_backend("sequential", model)
    list(backend.run([job], params, config.training.local()))  # the first call warms up
    clock = time.perf_counter if device == "cuda" else time.process_time
    started = clock()
    list(backend.run([job], params, config.training.local()))
    spent = clock() - started
    example = spent / len(client.examples["y"])
    seconds = len(federations) * config.training.rounds * len(images.y) * example
    drawn, pixels = len(images.y) + len(images.test_y), prod(images.shape)
    weights = sum(p.numel() for p in params.values())
    return Costs(
        jobs=len(federations),
        seconds=seconds,
        disk=len(config.seeds) * drawn * pixels + len(federations) * (4 * weights + 8 * len(images.test_y)),
        memory=PROCESS_BYTES + 8 * drawn * pixels + 16 * weights,
        details={
            "rounds": f"{config.training.rounds}",
            "time per client's round, the fewest clients": f"{1000 * spent:.0f} ms",
        },
    )
