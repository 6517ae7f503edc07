"""Tracking of the jobs of an inversion experiment: settings, data, models, accuracies, and every attack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedprint.evaluation.inversion.capability import accuracy_of_runs
from fedprint.evaluation.metrics import measurement
from fedprint.kinds.images import images_use, log_model, read_hits, read_losses
from fedprint.kinds.inversion.config import InversionExperiment
from fedprint.kinds.inversion.jobs import Part, Training, images_of, label_of, parts_of
from fedprint.kinds.inversion.results.candidates import rows_of_candidates
from fedprint.kinds.inversion.results.collect import setting_of
from fedprint.kinds.inversion.results.judge import MATCHINGS
from fedprint.kinds.inversion.results.outcome import read_outcome
from fedprint.kinds.inversion.results.rows import rows_of_images
from fedprint.kinds.inversion.results.scene import Scene, attack_keys, setting_keys
from fedprint.kinds.jobs import points_of
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done
from fedprint.lab.tracking.origin import flat
from fedprint.lab.tracking.runs import DataUse, Run, RunHead
from fedprint.types import Measurement


def head_of(experiment: InversionExperiment, job: Job) -> RunHead:
    """Return the head of the MLflow run of a job."""
    digest = experiment.digest()
    return RunHead(
        experiment="fedprint",
        key={"experiment": experiment.name, "job": job.label, "config": digest},
        name=f"{experiment.name} {job.label}",
        params={**dict(flat(experiment.config.model_dump(mode="json"))), **_keys(experiment, part_of(experiment, job))},
        tags={"fast": experiment.fast, "kind": "inversion"},
        data=(data_use(experiment, job.data),),
        group=experiment.name,
        description=experiment.config.report.title,
    )


def data_use(experiment: InversionExperiment, digest: str) -> DataUse:
    """Return which images an experiment uses."""
    config = experiment.config
    return images_use(config.data, images_of(config.data, config.seed), digest)


def part_of(experiment: InversionExperiment, job: Job) -> Part:
    """Return the part of the experiment that a job computes."""
    return next(part for part in parts_of(experiment) if label_of(experiment, part) == job.label)


def _keys(experiment: InversionExperiment, part: Part) -> Mapping[str, Any]:
    """Return the keys in which a job differs from others of its experiment, and what is tracked with them."""
    keys = setting_keys(experiment, experiment.settings[setting_of(part)])
    if isinstance(part, Training):
        network = experiment.config.attacks[part.attack].network.name
        return {**keys, "training": "federated", "network": network, "run": part.run}
    attacked = attack_keys(experiment, part.cell.attack, part.cell.batch)
    return {**keys, **attacked, "adversary": part.adversary}


def log_job(experiment: InversionExperiment, done: Done, run: Run) -> None:
    """Track the results of a finished job."""
    part, data = part_of(experiment, done.job), data_use(experiment, done.job.data)
    run.set_tags({"config_hash": experiment.digest()})
    if isinstance(part, Training):
        network = experiment.config.attacks[part.attack].network.name
        model = log_model(run, done.outputs["model"], network, data)
        points = points_of("utility/accuracy", _accuracy(experiment, done))
        run.log_metrics([*read_losses(done.outputs["hits"]), *points], model=model, data=data)
        return
    outcome = read_outcome(done.outputs["outcome"])
    scene = Scene.of(experiment, part.cell, part.adversary)
    rows = [*rows_of_images(scene, outcome.judged)]
    rows += rows_of_candidates(scene, outcome.judged.candidates, experiment.config.participants)
    points = [point for row in rows for name in _names(row) for point in points_of(f"attack/{name}", row)]
    run.log_metrics(points, data=data)


def _accuracy(experiment: InversionExperiment, done: Done) -> Measurement:
    hits = read_hits(done.outputs["hits"])
    classes = len(images_of(experiment.config.data, experiment.config.seed).class_names)
    return measurement("accuracy", accuracy_of_runs(hits[None]), 1 / classes, np.arange(len(hits)))


def _names(row: Measurement) -> Iterator[str]:
    """Yield the name of a row in charts, which show the best assignment and cut pixels alone."""
    keys = row.keys
    if keys.get("matching") not in (None, MATCHINGS[1]) or keys.get("pixels") == "raw":
        return
    if row.metric.startswith("example_membership"):
        yield "_".join(str(part) for part in (row.metric, keys["attack"], keys.get("pairs")) if part)
    elif row.metric == "tracing_accuracy":
        by = "" if keys.get("matching") or keys["attack_variant"] else f"_{keys['attack']}"
        yield f"tracing_{keys['level']}_{keys['participants']}{by}"
    elif "threshold" in keys:
        yield f"{row.metric}_{keys['threshold']}"
    else:
        yield row.metric
