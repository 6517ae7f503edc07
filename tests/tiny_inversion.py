"""An inversion experiment on made-up images that runs in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedprint.data.describe import write_table
from fedprint.evaluation.rows import Row
from fedprint.kinds.inversion import run
from fedprint.kinds.inversion.config import (
    InversionExperiment,
)
from fedprint.kinds.inversion.scene import Place
from fedprint.kinds.inversion.victims import ExposureCell

SMALL: Mapping[str, Any] = {
    "report": {"title": "Tiny inversion"},
    "data": {"name": "blobs", "train": 60, "test": 40},
    "images": 4,
    "victims": 2,
    "participants": [2],
    "candidates": {"public": 10, "pairs": 40},
    "attacks": [
        {
            "network": {"name": "dlnet", "channels": 6, "bound": 0.5},
            "attack": {"name": "gradient-matching", "evaluations": 60},
            "batches": [1, 2],
        },
        {"network": {"name": "mlp", "hidden": 8, "activation": "sigmoid"}, "attack": {"name": "closed-form"}},
    ],
    "training": {"clients": 3, "rounds": 4, "batch_size": 8},
    "mechanisms": [
        {"defence": "none"},
        {"defence": "ppdl_0.3", "defences": [{"name": "top-k", "share": 0.3, "per_layer": True}]},
        {"defence": "spn", "defences": [{"name": "spn", "alpha2": "$strength", "bits": 8}], "strengths": [0.5]},
        {
            "defence": "spn",
            "variant": "16 bits",
            "defences": [{"name": "spn", "alpha2": "$strength", "bits": 16}],
            "strengths": [0.5],
        },
        {"defence": "dp", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.5, 0.0001]},
    ],
    "fast": {"training": {"rounds": 2}},
}


def write_blobs(folder: Path, side: int = 8) -> None:
    """Smooth grey images of three classes, each bright in a corner of its own."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    rows, columns = np.mgrid[0:side, 0:side] / (side - 1)
    centres = np.array([[0.2, 0.2], [0.8, 0.2], [0.5, 0.8]])[labels] + 0.08 * rng.normal(size=(120, 2))
    distance = (rows - centres[:, :1, None]) ** 2 + (columns - centres[:, 1:, None]) ** 2
    images = np.clip(40 + 200 * np.exp(-6 * distance) + 8 * rng.normal(size=distance.shape), 0, 255)
    columns_of = {
        "images": images.astype(np.uint8),
        "labels": labels.astype(np.uint8),
        "split": (np.arange(120) >= 80).astype(np.uint8),
    }
    write_table(folder / "blobs", columns_of, {"licence": "CC0"})


def in_this_process(work: Any, requests: Any, *, jobs: int, title: str) -> list[Any]:
    return [work(request) for request in requests]


def of_cell(experiment: InversionExperiment, defence: str, batch: int = 1, attack: int = 0) -> ExposureCell:
    setting = next(i for i, s in enumerate(experiment.settings) if s.defence == defence)
    return run.exposure_cell(experiment, Place(attack=attack, setting=setting, batch=batch))


def where(rows: list[Row], **keys: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in keys.items())]
