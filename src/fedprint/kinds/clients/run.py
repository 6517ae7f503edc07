"""Run a sweep over the number of clients: all cells, several at a time, then rows, the report and MLflow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedprint.data.locate import data_root
from fedprint.defences.schedules import Constant, Schedule
from fedprint.evaluation.rows import Row
from fedprint.kinds.clients.cells import result_of
from fedprint.kinds.clients.config import ClientsExperiment, load_clients
from fedprint.kinds.clients.rows import rows_of
from fedprint.kinds.plane.point_pool import run_all
from fedprint.kinds.workspace import workspace_lock
from fedprint.reports.clients import write_clients
from fedprint.reports.clients_rows import ClientsHead, accuracies, final
from fedprint.types import FedprintError


def run_named(root: Path, name: str, line: tuple[bool, Sequence[str]], dry_run: bool, jobs: int | None) -> bool:
    """Run the experiment of a file under ``--fast`` and assignments; return whether there is a report now."""
    experiment = load_clients(root, name, fast=line[0], assignments=line[1])
    if dry_run:
        rounds = experiment.config.training.rounds
        print(f"{name}: {len(experiment.cells)} federations of {rounds} rounds; nothing written")
        return False
    run_clients(root, experiment, jobs)
    return True


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
        clients=config.clients,
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
        (f"accuracy/{row['partition']}/{row['method']}", float(row["value"]), int(row["clients"]))
        for row in accuracies(final(rows))
    ]
    log_report(root, experiment.name, key, folder, points=points, tags={"fast": experiment.fast})
