"""Stage embed: the recorded updates in two dimensions, for figures alone."""

from __future__ import annotations

import numpy as np
import sklearn.manifold  # noqa: F401  (what is loaded later would escape the limit on threads)
import torch
from threadpoolctl import threadpool_limits

from fedprint.attacks.embed import two_dimensions
from fedprint.lab.graph import Task
from fedprint.store.reader import UpdateStore


def run(task: Task) -> None:
    """Write two coordinates of every update that the figure may show."""
    torch.set_num_threads(1)
    store = UpdateStore.open(task.at("observed"), verify=False)
    with threadpool_limits(1):
        coordinates = two_dimensions(store, np.arange(len(store.index)), seed=task.seed)
    task.at("embedding").mkdir()
    np.savez(task.at("embedding") / "embedding.npz", xy=coordinates, obs_id=store.index["obs_id"].to_numpy())
