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
from fedprint.lab.cache import Cache
from fedprint.lab.graph import Job, Settings, Work
from fedprint.lab.versions.cleaning import JOBS

OBSERVED = "observed"
_CONFIG = "config.yaml"
_RECORDED = {work.path: work for work in (FEDERATION_WORK, POINT_WORK)}
"""Jobs that record the updates of devices."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A federation that was run, ``label`` among the jobs of its experiment: those of its outputs that are there."""

    label: str
    config: Experiment
    prior: str
    seed: int
    places: Mapping[str, Path]

    @property
    def name(self) -> str:
        """What to call it: experiment and job."""
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
    """Return the finished federation whose updates are in ``store``, with all of its outputs that are there.

    That is ``<report>/<job>`` of what was run here: ``quickstart/random-0``, and of a plane, study or suite any job by
    its label; by default an experiment's first prior and seed. Or a folder of a federation's outputs that holds
    observed/, as experiments/<name>/<prior>-<seed>, or observed/ in it. Raises FedprintError for anything else, and
    where the updates were not kept.
    """
    found = _in_folder(Path(store)) or _reported(root, Path(store))
    if OBSERVED not in found.places:
        raise FedprintError(f"{store}: its updates were not kept; run it again with --keep-updates")
    return found


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
    places = {output: folder / output for stage in FEDERATION.stages for output in stage.outputs}
    return Finished(label=folder.name, config=config, prior=prior, seed=seed, places=_there(places))


def _reported(root: Path, store: Path) -> Finished:
    """Return a job that a report here was made from: its outputs are in the cache."""
    name, *rest = store.parts or ("",)
    path = root / "reports" / name / JOBS
    if not name or store.is_absolute() or not path.is_file():
        raise FedprintError(
            f"{store}: no update store of a fedprint run; give an experiment that was run, or a folder with its "
            "observed/, as experiments/<name>/<prior>-<seed>"
        )
    jobs = {label: job for label, job in read_json(path).items() if job.get("work") in _RECORDED}
    label = "/".join(rest) or _first(jobs)
    if label not in jobs:
        known = ", ".join(jobs) or "none: it trains no federation whose updates are recorded"
        raise FedprintError(f"{store}: name one of its jobs, as {name}/<job>; there are {known}")
    job, cache = jobs[label], Cache.of(root)
    places = {
        output: cache.entry(stage.name, job["keys"][stage.name]).folder / output
        for stage in _RECORDED[job["work"]].graph.stages
        for output in stage.outputs
    }
    # A point does not know whose it is.
    config = Experiment.model_validate({**job["config"], "name": name})
    return Finished(label=label, config=config, prior=job["prior"], seed=job["seed"], places=_there(places))


def _first(jobs: Mapping[str, Any]) -> str:
    """Return the label of an experiment's first prior and seed; jobs of a plane, study or suite have to be named."""
    configs = [job["config"] for job in jobs.values()]
    return f"{configs[0]['split']['priors'][0]}-{configs[0]['seeds'][0]}" if configs else ""


def _there(places: Mapping[str, Path]) -> dict[str, Path]:
    return {name: path for name, path in places.items() if path.exists()}
