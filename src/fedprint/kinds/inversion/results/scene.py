"""The results that measurement rows of an inversion experiment are made from, and the keys of each row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedprint.evaluation.intervals import Bounds, Interval, cluster_mean_interval
from fedprint.evaluation.inversion.capability import accuracy_of_runs
from fedprint.evaluation.metrics import METRICS, measurement
from fedprint.kinds.inversion.config import InversionExperiment, Setting
from fedprint.kinds.inversion.jobs import Cell
from fedprint.kinds.inversion.results.outcome import Exposure
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, Ints, Measurement


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Whether a model gives reconstructed images (n,) their true labels; ``blind``: the same of a mean test image."""

    hits: Doubles
    blind: Doubles


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of all jobs of an experiment but for ``failures``: jobs that failed, and why.

    ``hits`` maps (attack, setting) to test hits (r, n) of the r federations of that attack's network. ``readings`` maps
    a cell and an adversary to the labels that a trained model reads from the reconstructions.
    """

    experiment: InversionExperiment
    hits: Mapping[tuple[int, int], Doubles]
    exposures: Mapping[Cell, Exposure]
    readings: Mapping[tuple[Cell, str], Reading]
    failures: Mapping[str, str] = field(default_factory=dict)

    def accuracy(self, attack: int, setting: int) -> Interval:
        """Return Acc(m) with its interval."""
        return accuracy_of_runs(self.hits[attack, setting])


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The keys that the rows of one attacked setting share, and the victims behind the images (n,)."""

    keys: Mapping[str, Any]
    victims: Ints
    seed: int

    @classmethod
    def of(cls, experiment: InversionExperiment, cell: Cell, adversary: str) -> Scene:
        """Return the scene of one attacked setting."""
        config, setting = experiment.config, experiment.settings[cell.setting]
        victims = np.repeat(np.arange(config.victims_of(cell.attack, cell.batch)), cell.batch)
        keys = {**setting_keys(experiment, setting), **attack_keys(experiment, cell.attack, cell.batch)}
        return cls(keys={**keys, "adversary": adversary}, victims=victims, seed=config.seed)

    def with_keys(self, **keys: Any) -> Scene:
        """Return the scene with more keys."""
        return replace(self, keys={**self.keys, **keys})

    def mean(self, metric: str, values: Any, chance: Any, bounds: Bounds | None = (0.0, 1.0)) -> Measurement:
        """Return the mean of one number per image."""
        raw = cluster_mean_interval(values, self.victims, self.rng(metric), bounds=bounds)
        info = METRICS[metric]
        interval = Interval(value=raw.value, lo=max(raw.lo, info.low), hi=min(raw.hi, info.high))
        return self.stated(metric, interval, float(np.mean(chance)))

    def stated(self, metric: str, interval: Interval, chance: float | None) -> Measurement:
        """Return a measurement on these images."""
        return replace(measurement(metric, interval, chance, self.victims), keys=self.keys)

    def rng(self, metric: str) -> np.random.Generator:
        """Return the generator of an interval: it depends on what is measured, not on the order of rows."""
        return numpy_rng(self.seed, "interval", metric, json.dumps(dict(self.keys), sort_keys=True, default=str))


def setting_keys(experiment: InversionExperiment, setting: Setting) -> dict[str, Any]:
    """Return the keys of a mechanism and strength."""
    params = [defence.model_dump(mode="json") for defence in setting.defences]
    return {
        "experiment": experiment.name,
        "dataset": experiment.config.data.name,
        "defence": setting.defence,
        "defence_params": json.dumps(params, sort_keys=True),
        "variant": setting.variant,
        "strength": setting.strength,
        "seed": experiment.config.seed,
        "config_hash": experiment.digest(),
    }


def attack_keys(experiment: InversionExperiment, attack: int, batch: int) -> dict[str, Any]:
    """Return the keys of an attack on one kind of gradient."""
    chosen = experiment.config.attacks[attack]
    return {
        "attack": chosen.attack.name,
        "attack_variant": chosen.variant,
        "network": chosen.network.name,
        "attack_batch": batch,
        "local_steps": None if chosen.local is None else chosen.local.steps,
        "view": "local",
    }
