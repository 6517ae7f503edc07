"""Where the stages of one (experiment, prior, seed) read and write, relative to the DVC workspace."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprint.data.splits import Prior
from fedprint.pipeline.config import Experiment, read_resolved
from fedprint.pipeline.registry import Analysis
from fedprint.types import AdversaryName, FedprintError


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Folders of one item of the matrix; the names are those of dvc.yaml."""

    base: Path
    item: str
    results: Path | None = None
    """Where attack and evaluation go when an existing store is attacked again; the base otherwise."""

    @property
    def prepared(self) -> Path:
        """Holds prior/, private/, test/, background/, samples/ and meta.json."""
        return self.base / "prepared" / self.item

    @property
    def updates(self) -> Path:
        """Holds observed/, public/, truth/, questions/, answers/ and utility/."""
        return self.base / "updates" / self.item

    @property
    def overhead(self) -> Path:
        """What the defences cost: times, which no other stage reads, as they differ between equal runs."""
        return self.base / "overhead" / self.item

    @property
    def attack(self) -> Path:
        """Holds a folder per adversary, and an embedding of the updates."""
        return (self.results or self.base) / "attack" / self.item

    def attack_of(self, adversary: AdversaryName) -> Path:
        """What one adversary answered."""
        return self.attack / adversary

    @property
    def analysis(self) -> Path:
        """Trials of every analysis."""
        return (self.results or self.base) / "analysis" / self.item

    @property
    def evaluation(self) -> Path:
        """Measurement rows and what the figures need."""
        return (self.results or self.base) / "evaluation" / self.item


@dataclass(frozen=True, kw_only=True)
class Job:
    """One item of the matrix with its configuration; without ``pictures`` nothing is drawn for the eye alone."""

    config: Experiment
    prior: Prior
    seed: int
    paths: Paths
    pictures: bool = True

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """The configured analyses that run under this prior."""
        return tuple(one for one in self.config.analyses if one.priors is None or self.prior in one.priors)


def artifacts(experiment: str) -> Path:
    """Return the outputs' folder of an experiment in the workspace (the current directory)."""
    return Path("artifacts") / experiment


def open_job(experiment: str, prior: str, seed: int) -> Job:
    """Read the resolved configuration; refuse a prior or seed that it does not have."""
    base = artifacts(experiment)
    config = read_resolved(base / "config.yaml")
    if prior not in config.split.priors or seed not in config.seeds:
        raise FedprintError(
            f"{prior}-{seed} is not in the configuration of '{experiment}' (priors {list(config.split.priors)}, "
            f"seeds {list(config.seeds)}); bring params.yaml in line with configs/experiments/{experiment}.yaml"
        )
    found: Prior = next(p for p in config.split.priors if p == prior)
    return Job(config=config, prior=found, seed=seed, paths=Paths(base=base, item=f"{prior}-{seed}"))


def data_dir() -> Path | None:
    """Return the folder of the data sets: FEDPRINT_DATA, or None."""
    value = os.environ.get("FEDPRINT_DATA")
    return Path(value) if value else None


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write sorted, indented JSON; equal values give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read what :func:`write_json` wrote."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedprintError(f"{path}: cannot be read ({error}); run the stage that makes it again") from None
    return values
