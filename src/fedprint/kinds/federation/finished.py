"""A finished federation: where the outputs of its stages are, so that it can be attacked again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedprint.data.files import read_json
from fedprint.errors import FedprintError
from fedprint.kinds.federation.config import Experiment, read_resolved
from fedprint.kinds.federation.graph import FEDERATION, FEDERATION_WORK
from fedprint.kinds.named_files import located, named_files
from fedprint.lab.cache import Cache
from fedprint.lab.graph import Job, Settings, Task, Work

OBSERVED = "observed"
_CONFIG = "config.yaml"


def open_finished(root: Path, store: Path | str) -> Task:
    """Return the finished job whose updates are in ``store``, with all of its outputs that are there.

    That is ``<experiment>`` or ``<experiment>/<prior>-<seed>`` of one that was run here, by default its first prior and
    seed; or a folder of such a job that holds observed/, as experiments/<name>/<prior>-<seed>, or observed/ in it.
    Raises FedprintError for anything else, and where the updates were not kept.
    """
    return _in_folder(Path(store)) or _reported(root, Path(store))


def job_of_finished(task: Task, config: Settings, work: Work = FEDERATION_WORK) -> Job:
    """Return a job whose stages run on the outputs of a finished federation, and open no data besides."""
    return Job(
        work=work,
        config=config,
        prior=task.prior,
        seed=task.seed,
        data="",
        files_at=tuple(str(located(path)) for path in named_files(task.config)),
        label=task.item,
    )


def _in_folder(store: Path) -> Task | None:
    """Return the job whose outputs are in a folder, None where there are none."""
    folder = store.resolve().parent if store.name == OBSERVED else store.resolve()
    beside = next((each / _CONFIG for each in (folder, *folder.parents[:2]) if (each / _CONFIG).is_file()), None)
    if beside is None or not (folder / OBSERVED).is_dir():
        return None
    places = {output: folder / output for stage in FEDERATION.stages for output in stage.outputs}
    return _task(read_resolved(beside), folder.name, places, str(store))


def _reported(root: Path, store: Path) -> Task:
    """Return a job of an experiment that has a report here: its outputs are in the cache."""
    name, *item = store.parts or ("",)
    report = root / "reports" / name
    known = all((report / file).is_file() for file in (_CONFIG, "jobs.json"))
    if not name or store.is_absolute() or len(item) > 1 or not known:
        raise FedprintError(
            f"{store}: no update store of a fedprint run; give an experiment that was run, or a folder with its "
            "observed/, as experiments/<name>/<prior>-<seed>"
        )
    config, jobs = read_resolved(report / _CONFIG), read_json(report / "jobs.json")
    chosen = item[0] if item else next(iter(_items(config)))
    keys, cache = jobs.get(chosen, {}), Cache.of(root)
    stages = [stage for stage in FEDERATION.stages if stage.name in keys]
    places = {
        output: cache.entry(stage.name, keys[stage.name]).folder / output
        for stage in stages
        for output in stage.outputs
    }
    return _task(config, chosen, places, str(store))


def _task(config: Experiment, item: str, places: Mapping[str, Path], store: str) -> Task:
    known = _items(config)
    if item not in known:
        raise FedprintError(f"{store}: '{item}' is no prior and seed of this run; choose of {', '.join(known)}")
    there = {name: path for name, path in places.items() if path.exists()}
    if OBSERVED not in there:
        raise FedprintError(f"{store}: its updates were not kept; run it again with --keep-updates")
    prior, seed = known[item]
    folder = there[OBSERVED].parent
    return Task(config=config, prior=prior, seed=seed, item=item, places=there, scratch=folder, key=folder.name)


def _items(config: Experiment) -> dict[str, tuple[str, int]]:
    return {f"{prior}-{seed}": (prior, seed) for seed in config.seeds for prior in config.split.priors}
