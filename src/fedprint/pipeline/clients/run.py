"""Run a sweep over the number of clients: all cells, several at a time, then rows, the report and MLflow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedprint.data.locate import data_root
from fedprint.defences.schedules import Constant, Schedule
from fedprint.evaluation.intervals import proportion_interval
from fedprint.evaluation.rows import Row, to_row
from fedprint.pipeline.clients.cells import result_of
from fedprint.pipeline.clients.config import Cell, ClientsExperiment, load_clients
from fedprint.pipeline.point_pool import run_all
from fedprint.pipeline.workspace import workspace_lock
from fedprint.reports.clients import ClientsHead, write_clients
from fedprint.types import FedprintError, Measurement


def run_named(root: Path, name: str, line: tuple[bool, Sequence[str]], dry_run: bool, jobs: int | None) -> Path | None:
    """Run the experiment of a file under ``--fast`` and assignments; return its report, None for a dry run."""
    experiment = load_clients(root, name, fast=line[0], assignments=line[1])
    if dry_run:
        rounds = experiment.config.training.rounds
        print(f"{name}: {len(experiment.cells)} federations of {rounds} rounds; nothing written")
        return None
    return run_clients(root, experiment, jobs)


def run_clients(root: Path, experiment: ClientsExperiment, jobs: int | None = None) -> Path:
    """Compute all cells, ``jobs`` at a time (default: one per core), publish and log the report; return its folder.

    A method that diverges is reported as such. Raises FedprintError when all do.
    """
    with workspace_lock(root, experiment.name):
        cells = experiment.cells
        found = run_all(result_of, cells, jobs=jobs or os.cpu_count() or 1, title=experiment.name)
        classes = len(experiment.config.data.load(data_root(None), experiment.config.seeds[0]).class_names)
        rows = rows_of(experiment, cells, found, classes)
        failures = {
            cell.label: str(one) for cell, one in zip(cells, found, strict=True) if isinstance(one, FedprintError)
        }
        if not rows:
            raise next(one for one in found if isinstance(one, FedprintError))
        folder = root / "reports" / experiment.name
        write_clients(head=head_of(experiment, failures), rows=rows, config_text=experiment.text(), out=folder)
        _log(root, experiment, rows, folder)
        return folder


def rows_of(
    experiment: ClientsExperiment, cells: Sequence[Cell], found: Sequence[list[float] | FedprintError], classes: int
) -> list[Row]:
    """Return one row per method, partition and number of clients: accuracy on the test images, a mean over seeds.

    The interval is over test images, which all seeds share; chance is that of a guess among ``classes``.
    """
    places: dict[tuple[str, int, str], list[np.ndarray]] = {}
    for cell, hits in zip(cells, found, strict=True):
        if not isinstance(hits, FedprintError):
            places.setdefault((cell.partition.name, cell.clients, cell.method.name), []).append(np.asarray(hits))
    config = experiment.config
    methods = {method.name: method for method in config.methods}
    alphas: dict[str, float | None] = {
        partition.name: getattr(partition, "alpha", None) for partition in config.partitions
    }
    return [
        to_row(
            _measured(
                hits,
                1 / classes,
                clients,
                {
                    "experiment": experiment.name,
                    "dataset": config.data.name,
                    "network": config.network.name,
                    "partition": partition,
                    "alpha": alphas[partition],
                    "clients": clients,
                    "training": "standalone" if methods[method].alone else config.training.aggregation,
                    "method": method,
                    "defence": "+".join(defence.name for defence in methods[method].defences) or "none",
                    "config_hash": experiment.digest(),
                    "seed": config.seeds[0] if len(config.seeds) == 1 else "all",
                    "n_seeds": len(hits),
                },
            )
        )
        for (partition, clients, method), hits in places.items()
    ]


def _measured(hits: Sequence[np.ndarray], chance: float, clients: int, keys: dict[str, object]) -> Measurement:
    mean = np.mean(hits, axis=0)
    interval = proportion_interval(float(mean.sum()), len(mean))
    return Measurement(
        metric="accuracy",
        unit="fraction",
        value=interval.value,
        lo=interval.lo,
        hi=interval.hi,
        chance=chance,
        n_questions=len(mean),
        n_users=clients,
        keys=keys,
    )


def head_of(experiment: ClientsExperiment, failures: dict[str, str]) -> ClientsHead:
    """Return what holds for the whole page."""
    config = experiment.config
    return ClientsHead(
        name=experiment.name,
        title=config.report.title,
        dataset=config.data.name,
        network=config.network.name,
        training=(
            f"{config.training.rounds} rounds of all clients, {config.training.epochs} local epoch(s), batches of "
            f"{config.training.batch_size}, {config.training.optimiser} at {config.training.lr:g}"
            f"{_scheduled(config.training.lr_schedule)}, aggregation {config.training.aggregation}"
        ),
        examples=(config.data.train, config.data.test),
        methods=tuple(method.name for method in config.methods),
        partitions=tuple(partition.name for partition in config.partitions),
        seeds=config.seeds,
        fast=experiment.fast,
        config_hash=experiment.digest(),
        failures=failures,
    )


def _scheduled(schedule: Schedule) -> str:
    if isinstance(schedule, Constant):
        return ""
    settings = ", ".join(f"{key} {value}" for key, value in schedule.model_dump(mode="json").items() if key != "name")
    return f" ({schedule.name}: {settings})"


def _log(root: Path, experiment: ClientsExperiment, rows: Sequence[Row], folder: Path) -> None:
    """Log accuracies by the number of clients, and the report."""
    from fedprint.tracking.runs import log_report

    key = {"experiment": experiment.name, "config": experiment.digest()}
    points = [
        (f"accuracy/{row['partition']}/{row['method']}", float(row["value"]), int(row["clients"])) for row in rows
    ]
    log_report(root, experiment.name, key, folder, points=points, tags={"fast": experiment.fast})
