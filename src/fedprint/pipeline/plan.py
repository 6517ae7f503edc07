"""What a run will cost, before it runs: time from a few real client updates, memory and disk from the layout."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from fedprint.data.prepared import meta_of
from fedprint.data.splits import split_users
from fedprint.federation.backends import best_device, make_backend
from fedprint.federation.store import store_bytes
from fedprint.pipeline import recipes
from fedprint.pipeline.config import Experiment
from fedprint.pipeline.stages.paths import data_dir
from fedprint.rng import seed_for
from fedprint.types import ClientJob

PROCESS_BYTES = 600 * 2**20
"""What a stage's process holds before it has any data (torch, lightning, scikit-learn)."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Costs of a whole experiment; ``federate_s`` and ``attack_s`` in seconds, sizes in bytes."""

    items: int
    devices: int
    updates: int
    parameters: int
    seconds_per_update: float
    federate_s: float
    attack_s: float
    disk: int
    memory: int


def estimate(config: Experiment) -> Estimate:
    """Load the data, time eight client updates with the configured backend, and multiply."""
    torch.set_num_threads(1)
    dataset = config.data.load(data_dir(), seed_for(config.seeds[0], "data"))
    split = split_users(
        dataset.users, seed=0, prior="random", test_fraction=config.split.test_fraction, test=dataset.test
    )
    dtype = recipes.DTYPES[config.federation.dtype]
    prior, private = (
        recipes.ready(users, dtype, best_device(), config.model) for users in (split.prior, split.private)
    )
    devices = recipes.make_devices(prior, private)
    plan = recipes.make_plan(config, len(devices), 0)
    model = recipes.build_model(config, meta_of(dataset), private, 0).to(best_device())
    params = recipes.parameters_of(model)
    layout = recipes.make_layout(config, plan, params, "dry-run")
    jobs = [ClientJob(device_id=d.device_id, examples=d.examples, seed=0) for d in devices[:8]]
    name = "sequential" if config.federation.backend == "auto" else config.federation.backend
    started = time.perf_counter()
    done = len(list(make_backend(name, model).run(jobs, params, plan.training)))
    per_update = (time.perf_counter() - started) / done
    items = len(config.split.priors) * len(config.seeds)
    updates = sum(plan.expected(t) for t in range(plan.rounds))
    shadows = min(config.selection.shadow_rounds, plan.rounds) * len(prior)
    kept = sum(layout.sizes[name] for name in layout.kept)
    return Estimate(
        items=items,
        devices=len(devices),
        updates=updates,
        parameters=layout.d,
        seconds_per_update=per_update,
        federate_s=items * updates * per_update,
        # kernels: updates x prior updates x parameters, four transforms, at about 30 GFLOP/s
        attack_s=items * (shadows * per_update / 2 + 4 * updates * updates * kept / 3e10 + 20),
        disk=items * store_bytes(layout),
        memory=PROCESS_BYTES + 4 * (shadows * kept + 10 * updates * updates // 2),
    )


POINT_SECONDS = 8.0
"""What a point costs besides training and kernels: preparing, embedding, evaluating."""


def estimate_points(config: Experiment, points: int, jobs: int) -> float:
    """Return about how many minutes ``points`` federations with their attacks take, ``jobs`` at a time."""
    split = config.split.model_copy(update={"priors": config.split.priors[:1]})
    one = estimate(config.model_copy(update={"seeds": config.seeds[:1], "split": split}))
    return points * (one.federate_s + max(one.attack_s, POINT_SECONDS)) / jobs / 60
