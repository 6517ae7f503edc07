"""The stages of a sweep over the number of clients: each opens its inputs, calls a function, writes its outputs."""

from __future__ import annotations

import sys

import numpy as np
import torch

from fedprint.data.formats.files import read_json, write_json
from fedprint.data.formats.locate import data_root
from fedprint.kinds.clients.config import SweepSettings
from fedprint.kinds.clients.training import chosen_executor, trained
from fedprint.kinds.images import draw_images, is_small, read_images, write_hits, write_model
from fedprint.lab.graph import Task
from fedprint.lab.workers.ray_cluster import join


def draw(task: Task) -> None:
    """Write the images of the sweep."""
    draw_images(task, task.config.data, task.config.data_seed)


def choose(task: Task) -> None:
    """Write the executor's name, by a short trial where the settings name none: a job keeps its first executor."""
    torch.set_num_threads(1)
    name = task.config.training.backend
    if name == "auto":
        name = chosen_executor(task.config, task.config.data.load(data_root(None), task.config.data_seed), task.device)
        print(f"executor: {name}", file=sys.stderr, flush=True)
    write_json(task.at("executor") / "executor.json", {"backend": name})


def connect(config: SweepSettings) -> None:
    """Join the Ray cluster before the stage is confined, where clients train on one."""
    if config.training.backend.startswith("ray"):
        join()


def train(task: Task) -> None:
    """Train the federation; write the share of models that get each test image right, and a small model itself."""
    torch.set_num_threads(1)
    backend = read_json(task.at("executor") / "executor.json")["backend"]
    losses: dict[int, float] = {}
    hits, params = trained(task.config, read_images(task.at("images")), backend, losses.__setitem__, task.device)
    write_hits(task.at("hits"), np.array([round(float(share), 6) for share in hits]), losses)
    kept = params if params is not None and is_small(params) else None
    write_model(task.at("model"), kept, {"config": task.config.model_dump(mode="json")})
