"""A finished federation: what it was and where the outputs of its stages are, so that it can be attacked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprint.data.formats.files import read_json
from fedprint.data.formats.locate import located
from fedprint.errors import FedprintError
from fedprint.kinds.federation.config import Experiment, read_resolved
from fedprint.kinds.federation.graph import FEDERATION, FEDERATION_WORK, POINT_WORK
from fedprint.kinds.federation.named_files import named_files
from fedprint.kinds.requests import report_name
from fedprint.lab.cache import Cache
from fedprint.lab.graph import Job, Settings, Work
from fedprint.lab.versions.cleaning import JOBS

OBSERVED = "observed"
_CONFIG = "config.yaml"
_RECORDED = {work.path: work for work in (FEDERATION_WORK, POINT_WORK)}
"""Jobs that record the updates of devices."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A federation that was run, ``label`` among the jobs of its experiment, and those of its outputs that exist."""

    label: str
    config: Experiment
    prior: str
    seed: int
    outputs: Mapping[str, Path]

    @property
    def name(self) -> str:
        """Experiment and job."""
        return f"{self.config.name} {self.label}"

    def job(self, config: Settings, work: Work = FEDERATION_WORK) -> Job:
        """Return a job whose stages run on its outputs, and open no data besides."""
        return Job(
            work=work,
            config=config,
            prior=self.prior,
            seed=self.seed,
            data="",
            files_at=tuple(str(located(path)) for path in named_files(self.config)),
            label=self.name,
        )


def open_finished(root: Path, store: Path | str) -> Finished:
    """Return the finished federation whose updates are in ``store``, with all of its outputs that exist.

    That is ``<report>/<job>`` of a run on this machine: ``quickstart/random-0``, and of a plane, study or suite any job
    by its label; by default an experiment's first prior and seed. The report may be given by its file or folder too. Or
    ``store`` is a folder of a federation's outputs that holds observed/, as experiments/<name>/<prior>-<seed>, or
    observed/ in it. Raises FedprintError for anything else, and where the updates were not kept.
    """
    finished = _in_folder(Path(store)) or _reported(root, Path(store))
    if OBSERVED not in finished.outputs:
        raise FedprintError(f"{store}: its updates were not kept; run it again with --keep-updates")
    return finished


def _in_folder(store: Path) -> Finished | None:
    """Return the federation whose outputs are in a folder, None where there are none."""
    folder = store.resolve().parent if store.name == OBSERVED else store.resolve()
    beside = next((each / _CONFIG for each in (folder, *folder.parents[:2]) if (each / _CONFIG).is_file()), None)
    # Of a plane's points a report keeps the updates alone: those are attacked by the point's name.
    if beside is None or not all((folder / output).is_dir() for output in (OBSERVED, "prior")):
        return None
    config = read_resolved(beside)
    known = {f"{prior}-{seed}": (prior, seed) for seed in config.seeds for prior in config.split.priors}
    if folder.name not in known:
        raise FedprintError(f"{store}: '{folder.name}' is no prior and seed of this run; choose of {', '.join(known)}")
    prior, seed = known[folder.name]
    outputs = {output: folder / output for stage in FEDERATION.stages for output in stage.outputs}
    return Finished(label=folder.name, config=config, prior=prior, seed=seed, outputs=_existing(outputs))


def _reported(root: Path, store: Path) -> Finished:
    """Return a job that a report here was made from: its outputs are in the cache."""
    name, label = _report_and_job(root, store)
    jobs = read_json(root / "reports" / name / JOBS)
    jobs = {label: job for label, job in jobs.items() if job.get("work") in _RECORDED}
    label = label or _first(jobs)
    if label not in jobs:
        known = ", ".join(jobs) or "none: it trains no federation whose updates are recorded"
        raise FedprintError(f"{store}: name one of its jobs, as {name}/<job>; there are {known}")
    job, cache = jobs[label], Cache.of(root)
    outputs = {
        output: cache.entry(stage.name, job["keys"][stage.name]).folder / output
        for stage in _RECORDED[job["work"]].graph.stages
        for output in stage.outputs
    }
    # The configuration of a point has no name of its own.
    config = Experiment.model_validate({**job["config"], "name": name})
    return Finished(label=label, config=config, prior=job["prior"], seed=job["seed"], outputs=_existing(outputs))


def _report_and_job(root: Path, store: Path) -> tuple[str, str]:
    """Return the name of a report, given by name, file or folder, and what follows it. Raises FedprintError."""
    for count in range(1, len(store.parts) + 1):
        name = report_name(root, str(Path(*store.parts[:count])))
        if (root / "reports" / name / JOBS).is_file():
            return name, "/".join(store.parts[count:])
    raise FedprintError(
        f"{store}: no update store of a fedprint run; give an experiment that was run, or a folder with its "
        "observed/, as experiments/<name>/<prior>-<seed>"
    )


def _first(jobs: Mapping[str, Any]) -> str:
    """Return the label of an experiment's first prior and seed; jobs of a plane, study or suite have to be named."""
    configs = [job["config"] for job in jobs.values()]
    return f"{configs[0]['split']['priors'][0]}-{configs[0]['seeds'][0]}" if configs else ""


def _existing(paths: Mapping[str, Path]) -> dict[str, Path]:
    return {name: path for name, path in paths.items() if path.exists()}
