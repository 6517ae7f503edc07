"""An inversion experiment on made-up images that runs in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedprint.data.formats.describe import write_table
from fedprint.errors import FedprintError
from fedprint.evaluation.rows import Row
from fedprint.kinds.inversion.config import InversionConfig, InversionExperiment
from fedprint.kinds.inversion.jobs import Cell, Part, exposure_settings, images_of, job_of, parts_of
from fedprint.kinds.inversion.results.collect import results_of
from fedprint.kinds.inversion.results.scene import Results
from fedprint.kinds.inversion.settings import ExposureSettings
from fedprint.kinds.inversion.victims import expose
from fedprint.kinds.requests import request_for
from fedprint.lab.graph import Job, Task
from fedprint.lab.runner import Done

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


def load(root: Path, name: str, *, fast: bool = False, assignments: Sequence[str] = ()) -> InversionExperiment:
    """Return the experiment of a file."""
    request = request_for(root, name, fast=fast, assignments=assignments)
    return InversionExperiment.of(request, InversionConfig)


def settings_at(experiment: InversionExperiment, defence: str, batch: int = 1, attack: int = 0) -> ExposureSettings:
    """Return what is attacked, and how, under the first setting of a defence."""
    setting = next(i for i, s in enumerate(experiment.settings) if s.defence == defence)
    return exposure_settings(experiment, Cell(attack=attack, setting=setting, batch=batch))


def expose_in(folder: Path, settings: ExposureSettings) -> Path:
    """Write what victims send, and the truth, to a folder each."""
    names = ("observed", "public", "truth", "queries", "candidates")
    expose(settings, images_of(settings.data, settings.seed), {name: folder / name for name in names})
    return folder


def ran(experiment: InversionExperiment, folder: Path, failing: Mapping[str, FedprintError] | None = None) -> Results:
    """Run the stages of all jobs in this process and return the results; ``failing`` jobs, by label, fail so."""
    found: dict[Part, Done | FedprintError] = {}
    for number, part in enumerate(parts_of(experiment)):
        job = job_of(experiment, part)
        fails = (failing or {}).get(job.label)
        found[part] = fails if fails is not None else run_job(job, folder / str(number), shared=folder)
    return results_of(experiment, found)


def run_job(job: Job, folder: Path, *, shared: Path) -> Done:
    """Run the stages of a job in this process; the images that they draw are those of all jobs."""
    graph = job.work.graph
    places = {name: folder / name for stage in graph.stages for name in stage.outputs} | {"images": shared / "images"}
    folder.mkdir(parents=True)
    for stage in graph.stages:
        opened = {name: places[name] for name in (*stage.inputs, *stage.outputs)}
        task = Task(
            config=job.config, prior=job.prior, seed=job.seed, paths=opened, scratch=folder, item=job.item, key="test"
        )
        if not all(opened[name].exists() for name in stage.outputs):
            stage.function()(task)
    return Done(job=job, outputs=places, keys={}, known=False)


def where(rows: list[Row], **keys: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in keys.items())]
