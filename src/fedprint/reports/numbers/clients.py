"""Reading the rows of a sweep over the number of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedprint.evaluation.rows import POOLED, Row
from fedprint.reports.wording import ranged

ALONE = "standalone"


@dataclass(frozen=True, kw_only=True)
class ClientsHead:
    """What holds for the whole page; ``failures`` says which federations diverged, and how."""

    name: str
    title: str
    dataset: str
    network: str
    training: str
    examples: tuple[int, int]
    methods: tuple[str, ...]
    partitions: tuple[str, ...]
    clients: tuple[int, ...]
    seeds: tuple[int, ...]
    fast: bool
    config_hash: str
    failures: Mapping[str, str]


def final(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that pool the seeds, or those of the only seed."""
    return [row for row in rows if row["seed"] == POOLED] or list(rows)


def accuracies(rows: Sequence[Row]) -> list[Row]:
    """Return the accuracies among ``rows``."""
    return [row for row in rows if row["metric"] == "accuracy"]


def accuracy_of(rows: Sequence[Row], partition: str, method: str, clients: int) -> Row | None:
    """Return a method's accuracy; None where it diverged or was not asked for."""
    place = (partition, method, clients)
    return next((r for r in accuracies(rows) if (r["partition"], r["method"], r["clients"]) == place), None)


def gains(rows: Sequence[Row], partition: str, better: str, worse: str) -> list[Row]:
    """Return how far one method's accuracy lies above another's, by the number of clients."""
    differences = _versus(rows, "accuracy_difference", partition, better, worse)
    return sorted(differences, key=lambda row: int(row["clients"]))


def growth(rows: Sequence[Row], partition: str, better: str, worse: str) -> Row | None:
    """Return how much larger that gain is among the most clients than among the fewest; None for one number."""
    return next(iter(_versus(rows, "accuracy_gain_difference", partition, better, worse)), None)


def points(row: Row) -> str:
    """Return a difference of accuracies in points: ``+5.0 [+3.9, +6.1]``."""
    return ranged(row, "+.1f", 100.0)


def _versus(rows: Sequence[Row], metric: str, partition: str, better: str, worse: str) -> list[Row]:
    place = (metric, partition, better, worse)
    return [r for r in rows if (r["metric"], r["partition"], r["method"], r.get("versus_method")) == place]
