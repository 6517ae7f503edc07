"""A small MLflow database as a plane leaves it: a group of points with data, model and metrics."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file

from fedprint.lab.tracking.runs import DataUse, RunHead, open_run
from fedprint.lab.tracking.views import View, save_view

EXPERIMENT = "albums-plane"
GROUP = "albums-plane 1f3a"
ALPHAS = (0.0, 0.5, 1.0)
SIGMAS = (0.0, 0.1, 0.3)
ROUNDS = 5
DATA = DataUse(
    name="albums",
    digest="0123456789abcdef" * 4,
    counts={"users": 60, "examples": 4210, "devices": 120, "attributes": 2},
)


def write_model(folder: Path) -> Path:
    """Write weights and how to build their model."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"head.weight": torch.arange(6.0).reshape(2, 3)}, folder / "weights.safetensors")
    (folder / "model.json").write_text(json.dumps({"model": {"name": "cnn"}, "classes": 2}))
    return folder


def write_plane(root: Path) -> None:
    """Write a run for each point of a plane of ``ALPHAS`` and ``SIGMAS``."""
    model = write_model(root / "model")
    for alpha in ALPHAS:
        for sigma in SIGMAS:
            write_point(root, alpha, sigma, model)


def write_point(root: Path, alpha: float, sigma: float, model: Path) -> str:
    """Write one point and return its run's id; its numbers are made up."""
    head = RunHead(
        experiment=EXPERIMENT,
        key={"experiment": EXPERIMENT, "alpha": str(alpha), "sigma": str(sigma)},
        name=f"alpha {alpha:g}, sigma {sigma:g}",
        params={"alpha": alpha, "sigma": sigma, "federation.rounds": ROUNDS, "seed": 0},
        tags={"mlflow.source.name": "fedprint run albums-plane"},
        data=[DATA],
        group=GROUP,
        description="A point of the plane **albums**.",
    )
    ap = 0.9 * math.exp(-2 * sigma) * (1 - 0.6 * alpha)
    with open_run(root, head) as run:
        run.log_metrics([("train/loss", 2 * math.exp(-0.3 * step), step) for step in range(ROUNDS)])
        model_id = run.log_model(model, "global model", {"model.name": "cnn"})
        final = {"utility/federated": 0.8 - 0.1 * alpha - sigma, "attack/ap_update": ap, "attack/ap_device": ap + 0.1}
        points = [(name, value, ROUNDS - 1) for name, value in final.items()]
        run.log_metrics(points, model=model_id, data=DATA)
    return run.run_id


def write_view(root: Path) -> str:
    """Save the view of the plane and return its link."""
    view = View(
        experiment=EXPERIMENT,
        group=GROUP,
        name="Plane",
        params=["alpha", "sigma"],
        metrics=["utility/federated", "attack/ap_update", "attack/ap_device"],
        scatter=("attack/ap_update", "utility/federated"),
    )
    return save_view(root, view)
