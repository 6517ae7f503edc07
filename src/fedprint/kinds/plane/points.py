"""One point of the privacy-utility plane: the stages of an experiment in this process, without DVC and MLflow.

Finished points stay in ``work/points/<key>/`` (rows, details, the point itself: some hundred kilobytes); what they were
computed from goes, but for the prepared data, which points share, and updates that are kept on request. The key holds
settings, data and code (:mod:`fedprint.kinds.plane.point_keys`), so a stale result cannot show.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock

from fedprint.data.files import read_json, write_json
from fedprint.data.locate import data_root
from fedprint.data.splits import Prior
from fedprint.evaluation.rows import Row
from fedprint.evaluation.tradeoff import Point, point_from_json, point_json, point_of
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.plane.point_keys import canonical, stage_keys
from fedprint.kinds.workspace import find_root

KEEP_UPDATES = "FEDPRINT_KEEP_UPDATES"
_KEPT = ("rows.jsonl", "analysis_rows.jsonl", "details.json")


@dataclass(frozen=True, kw_only=True)
class PointPaths(Paths):
    """Folders of a point's stages, each where its own key says; ``folders`` maps a stage to its folder."""

    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def prepared(self) -> Path:
        """Shared by all points on the same data."""
        return self.folders["prepare"]

    @property
    def updates(self) -> Path:
        """Shared by points that differ in the attack only."""
        return self.folders["federate"] / "updates"

    @property
    def overhead(self) -> Path:
        """Beside the updates."""
        return self.folders["federate"] / "overhead"

    @property
    def attack(self) -> Path:
        """Scores of every attack."""
        return self.folders["attack"]

    @property
    def analysis(self) -> Path:
        """Trials of every analysis."""
        return self.folders["analyse"]

    @property
    def evaluation(self) -> Path:
        """Measurement rows."""
        return self.folders["evaluate"]


def run_point(config: Experiment, prior: Prior, seed: int, *, folder: Path | None = None) -> Point:
    """Return the point of a configuration, computed unless it is in ``folder`` (default: work/points).

    Safe when several processes want the same point, data or federation: one computes, the others wait. A killed run
    leaves nothing that reads as finished, and its federation goes on at the last complete round. Updates and
    scores go when the point is there, unless :func:`keeps_updates`.
    """
    job, paths = _open(config, prior, seed, folder or points_folder())
    if not paths.evaluation.is_dir():
        with _lock(paths.evaluation):
            if not paths.evaluation.is_dir():
                _compute(job, paths)
    return read_point(paths.evaluation)


def is_finished(config: Experiment, prior: Prior, seed: int, *, folder: Path | None = None) -> bool:
    """Return whether the point is in ``folder`` already."""
    _, paths = _open(config, prior, seed, folder or points_folder())
    return paths.evaluation.is_dir()


def keeps_updates() -> bool:
    """Return whether updates and scores stay beside a point: another attack on them needs no federation of its own."""
    return os.environ.get(KEEP_UPDATES) == "1"


def points_folder() -> Path:
    """Return where points are kept."""
    return find_root() / "work" / "points"


def read_point(folder: Path) -> Point:
    """Return a finished point."""
    rows, analyses = (_rows(folder / name) for name in ("rows.jsonl", "analysis_rows.jsonl"))
    return point_from_json(read_json(folder / "point.json"), rows, analyses)


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _open(config: Experiment, prior: Prior, seed: int, folder: Path) -> tuple[Job, PointPaths]:
    own = canonical(config, prior, seed)
    keys = stage_keys(find_root(), own, own.data.fingerprint(data_root(None)))
    shared = ("prepare", "federate", "attack", "analyse")
    folders = {stage: folder / "stages" / f"{stage}-{keys[stage]}" for stage in shared}
    folders["evaluate"] = folder / keys["evaluate"]
    # The item names the checkpoint of a killed federation: with the key, other code begins anew.
    paths = PointPaths(base=folder, item=f"{prior}-{seed}-{keys['federate']}", folders=folders)
    return Job(config=own, prior=prior, seed=seed, paths=paths, pictures=False), paths


def _compute(job: Job, paths: PointPaths) -> None:
    """Run what is missing of the stages; locks are taken in the order of the stages, so nobody waits in a circle."""
    from fedprint.kinds.federation.stages import analyse, ask, attack, prepare

    with _lock(paths.prepared):
        _once(job, paths, "prepare", prepare.run)
    with _lock(paths.folders["federate"]):
        _once(job, paths, "federate", _federate)
        ask.run(job)
        _once(job, paths, "attack", attack.run)
        _once(job, paths, "analyse", analyse.run)
        _once(job, paths, "evaluate", _evaluate)
        if not keeps_updates():
            for stage in ("attack", "analyse", "federate"):
                _remove(paths.folders[stage])


def _once(job: Job, paths: PointPaths, stage: str, run: Callable[[Job], object]) -> None:
    """Run a stage into a folder that gets its name when it is complete, unless there is one."""
    target = paths.folders[stage]
    if target.is_dir():
        return
    partial = _partial(target)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    run(replace(job, paths=replace(paths, folders={**paths.folders, stage: partial})))
    partial.rename(target)


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


def _remove(target: Path) -> None:
    """Take the folder's name away first: half a folder must not read as finished."""
    shutil.rmtree(_partial(target), ignore_errors=True)
    target.rename(_partial(target))
    shutil.rmtree(_partial(target))


def _federate(job: Job) -> None:
    """Run the stage and note its processor seconds, None when a killed run's rounds are not among them."""
    from fedprint.kinds.federation.stages import federate

    resumed = federate.checkpoint_folder(job).exists()
    started = time.process_time()
    federate.run(job)
    seconds = None if resumed else time.process_time() - started
    write_json(job.paths.overhead / "federation.json", {"federation_seconds": seconds})


def _evaluate(job: Job) -> None:
    """Evaluate, reduce the result to what a plane needs, and add the point."""
    from fedprint.kinds.federation.stages import evaluate

    rows, out = evaluate.run(job), job.paths.evaluation
    overhead = {**read_json(job.paths.overhead / "overhead.json"), **read_json(job.paths.overhead / "federation.json")}
    by_user = read_json(out / "details.json")["ap_by_user"]
    for path in out.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in _KEPT:
            path.unlink()
    key = out.name.strip(".").removesuffix(".partial")
    write_json(out / "point.json", point_json(point_of(key, rows, by_user, overhead)))


def _lock(folder: Path) -> FileLock:
    """Return the lock of a result; the operating system frees it when its holder ends, however it ends."""
    locks = folder.parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / f"{folder.name}.lock")
