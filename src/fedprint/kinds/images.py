"""Jobs on labelled images, which have no users: drawing the images, networks and clients, and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedprint.data.formats.files import read_json, write_json
from fedprint.data.formats.locate import data_root
from fedprint.data.sources.labelled_images import LabelledImages, LabelledSet
from fedprint.defences.points import Defence
from fedprint.defences.secret_head import secret_head
from fedprint.lab.graph import Job, Settings, Stage, Task, Work
from fedprint.lab.tracking.runs import DataUse, Point, Run
from fedprint.models.base import FedModule
from fedprint.models.components import Model
from fedprint.models.dual_head import DualHead
from fedprint.models.networks import build_network
from fedprint.types import Device, Doubles, Params

WEIGHTS = "model.safetensors"
_IMAGES, _CLASSES, _HITS, _LOSSES = "images.safetensors", "classes.json", "hits.npy", "losses.json"


@cache
def loaded(source: LabelledImages, seed: int) -> LabelledSet:
    """Return the images that a seed draws, loaded once per process; outside of stages."""
    return source.load(data_root(None), seed)


def image_job(work: Work, config: Settings, images: LabelledImages, seed: int, label: str) -> Job:
    """Return a job on labelled images, which have no users and so no prior. Raises FedprintError without the data."""
    root = data_root(None)
    return Job(
        work=work,
        config=config,
        prior="none",
        seed=seed,
        data=images.fingerprint(root),
        data_at=(str(root),) if root is not None else (),
        label=label,
    )


def draw_stage(run: str, settings: Sequence[str], code: Sequence[str]) -> Stage:
    """Return the stage that draws a kind's images: the only one of its jobs that opens the data."""
    return Stage(
        name="draw",
        run=run,
        outputs=("images",),
        settings=tuple(settings),
        code=(
            "kinds/images.py",
            "rng.py",
            "data/sources/images.py",
            "data/sources/labelled_images.py",
            "data/formats/describe.py",
            "data/formats/table.py",
            *code,
        ),
        data=True,
    )


def draw_images(task: Task, source: LabelledImages, seed: int) -> None:
    """Write the images that a seed draws, a byte for each number."""
    drawn = source.load(data_root(None), seed)
    folder = task.at("images")
    folder.mkdir()
    tensors = {"x": _bytes(drawn.x), "y": drawn.y, "test_x": _bytes(drawn.test_x), "test_y": drawn.test_y}
    save_file(tensors, folder / _IMAGES)
    write_json(folder / _CLASSES, {"classes": list(drawn.class_names)})


def read_images(folder: Path) -> LabelledSet:
    """Return drawn images, to the bit as they were loaded."""
    tensors = load_file(folder / _IMAGES)
    return LabelledSet(
        x=tensors["x"].float() / 255,
        y=tensors["y"],
        test_x=tensors["test_x"].float() / 255,
        test_y=tensors["test_y"],
        class_names=tuple(read_json(folder / _CLASSES)["classes"]),
    )


def _bytes(images: torch.Tensor) -> torch.Tensor:
    return (255 * images).round().to(torch.uint8)


def write_hits(folder: Path, hits: Doubles, losses: Mapping[int, float]) -> None:
    """Write which test images (n,) are right, or what share of models gets each right, and the loss of each round."""
    folder.mkdir()
    np.save(folder / _HITS, hits)
    write_json(folder / _LOSSES, {"loss": [losses[t] for t in range(len(losses))]})


def read_losses(folder: Path) -> list[Point]:
    """Return the losses by round that :func:`write_hits` wrote, for charts; none of clients that train alone."""
    return [("train/loss", value, t) for t, value in enumerate(read_json(folder / _LOSSES)["loss"])]


def read_hits(folder: Path) -> Doubles:
    """Return the hits that :func:`write_hits` wrote."""
    hits: Doubles = np.load(folder / _HITS, allow_pickle=False)
    return hits


SMALL = 1_000_000
"""Parameters up to which every trained model is kept: 4 MB."""


def is_small(params: Params) -> bool:
    """Return whether a model is small enough to be kept in any case."""
    return sum(tensor.numel() for tensor in params.values()) <= SMALL


def write_model(folder: Path, params: Params | None, settings: Mapping[str, Any]) -> None:
    """Write a trained model (None: not kept) and the settings that rebuild it."""
    folder.mkdir()
    if params is not None:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in params.items()}, folder / WEIGHTS)
    write_json(folder / "model.json", {**settings, "kept": params is not None})


def read_model(folder: Path) -> dict[str, torch.Tensor]:
    """Return the parameters of a model that was kept."""
    return load_file(folder / WEIGHTS)


def log_model(run: Run, folder: Path, name: str, data: DataUse) -> str | None:
    """Log a trained model where it was kept; return its id."""
    return run.log_model(folder, name=name, params={"dataset": data.name}) if (folder / WEIGHTS).is_file() else None


def images_use(source: LabelledImages, images: LabelledSet, digest: str) -> DataUse:
    """Return which labelled images a run uses: name, digest and counts."""
    counts = {"train": len(images.y), "test": len(images.test_y), "classes": len(images.class_names)}
    return DataUse(name=source.name, digest=digest, counts=counts)


def network_of(config: Model, shape: tuple[int, int, int], classes: int, defences: Sequence[Defence]) -> FedModule:
    """Return the network that clients train: with a second head where the mechanism is a secret one."""
    model = build_network(config, shape, classes, False)
    secret = secret_head(defences)
    return model if secret is None else DualHead(model, bits=secret.bits, alpha1=secret.alpha1, margin=secret.margin)


def client(name: str, number: int, x: Tensor, y: Tensor) -> Device:
    """Return a device that holds images (n, c, h, w) and labels (n,)."""
    return Device(device_id=f"{name}-{number}", user_id=number, role="anonymous", examples={"x": x, "y": y})
