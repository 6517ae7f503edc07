"""Measurement rows of a sweep over the number of clients: accuracies, and differences over the same test images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedprint.evaluation.intervals import Interval, difference_interval, proportion_interval
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.rows import Row, pool_seeds, to_row
from fedprint.kinds.clients.config import ClientsExperiment
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, FedprintError, Measurement

Hits = Doubles
"""For each test image (n,) the share of models that get it right."""

PAIRS = (
    ("fedavg", "standalone"),
    ("spn", "fedavg"),
    ("spn", "ppdl-0.3"),
    ("spn", "ppdl-0.05"),
    ("spn", "dp-0.1"),
    ("fedavg", "ppdl-0.05"),
    ("fedavg", "dp-0.1"),
)
"""Methods that the spn paper compares: its claims are about the first minus the second."""


def rows_of(experiment: ClientsExperiment, ended: Sequence[Hits | FedprintError], classes: int) -> list[Row]:
    """Return accuracies and paired differences, one row per seed, and of several seeds one of ``seed: "all"`` too.

    ``ended`` are the hits of every federation, or its error. Intervals are over the test images, which all share. The
    interval of several seeds covers the spread between them where that is wider (``pool_seeds``).
    ``accuracy_difference`` is ``method`` minus ``versus_method``; ``accuracy_gain_difference`` is that among
    ``clients`` minus that among ``versus_clients``. Chance is that of a guess among ``classes``, or 0 for a difference.
    """
    hits = {
        (each.seed, each.partition.name, each.clients, each.method.name): one
        for each, one in zip(experiment.federations, ended, strict=True)
        if not isinstance(one, FedprintError)
    }
    config = experiment.config
    rows = []
    for seed in config.seeds:
        for partition in config.partitions:
            chosen = {key[2:]: one for key, one in hits.items() if key[:2] == (seed, partition.name)}
            shared = {
                "experiment": experiment.name,
                "dataset": config.data.name,
                "network": config.network.name,
                "partition": partition.name,
                "alpha": getattr(partition, "alpha", None),
                "config_hash": experiment.digest(),
                "seed": seed,
            }
            for one in [*_accuracies(chosen, 1 / classes), *_differences(chosen, config.seeds[0], partition.name)]:
                keys = {**shared, **_keys(experiment, str(one.keys["method"])), **one.keys}
                rows.append(to_row(replace(one, keys=keys)))
    return pool_seeds(rows, least=1) if len(config.seeds) > 1 else rows


def _keys(experiment: ClientsExperiment, method: str) -> dict[str, Any]:
    config = experiment.config
    chosen = next(one for one in config.methods if one.name == method)
    return {
        "training": "standalone" if chosen.alone else config.training.aggregation,
        "defence": chosen.defence,
    }


def _accuracies(by_method: Mapping[tuple[int, str], Hits], chance: float) -> Iterator[Measurement]:
    for (clients, method), hits in by_method.items():
        yield accuracy(hits, chance, {"method": method, "clients": clients})


def accuracy(hits: Hits, chance: float, keys: dict[str, Any]) -> Measurement:
    """Return the accuracy over the test images."""
    return _measured("accuracy", proportion_interval(float(hits.sum()), len(hits)), chance, len(hits), keys)


def _differences(by_method: Mapping[tuple[int, str], Hits], seed: int, partition: str) -> Iterator[Measurement]:
    counts = sorted({clients for clients, _ in by_method})
    for better, worse in PAIRS:
        both = [n for n in counts if (n, better) in by_method and (n, worse) in by_method]
        gains = {n: by_method[n, better] - by_method[n, worse] for n in both}
        keys = {"method": better, "versus_method": worse}
        for clients, gain in gains.items():
            rng = numpy_rng(seed, "accuracy_difference", partition, clients, better, worse)
            interval = difference_interval(gain, np.zeros_like(gain), rng)
            yield _measured("accuracy_difference", interval, 0.0, len(gain), {**keys, "clients": clients})
        if len(gains) > 1:
            fewest, most = min(gains), max(gains)
            rng = numpy_rng(seed, "accuracy_gain_difference", partition, better, worse)
            interval = difference_interval(gains[most], gains[fewest], rng, bounds=(-2.0, 2.0))
            keys_of_both = {**keys, "clients": most, "versus_clients": fewest}
            yield _measured("accuracy_gain_difference", interval, 0.0, len(gains[most]), keys_of_both)


def _measured(metric: str, interval: Interval, chance: float, n: int, keys: dict[str, Any]) -> Measurement:
    measured = measurement(metric, interval, chance, np.arange(n))
    return replace(measured, n_users=keys["clients"], keys=keys)
