"""The facts about a whole sweep over the number of clients, as its page shows them."""

from __future__ import annotations

from collections.abc import Mapping

from fedprint.defences.schedules import Constant, Schedule
from fedprint.kinds.clients.config import ClientsExperiment
from fedprint.reports.numbers.clients import ClientsHead


def head_of(experiment: ClientsExperiment, failures: Mapping[str, str]) -> ClientsHead:
    """Return the facts about the whole experiment."""
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
        failures=dict(failures),
    )


def _scheduled(schedule: Schedule) -> str:
    if isinstance(schedule, Constant):
        return ""
    settings = ", ".join(f"{key} {value}" for key, value in schedule.model_dump(mode="json").items() if key != "name")
    return f" ({schedule.name}: {settings})"
