"""A lab that tracks its jobs in MLflow: a run each, and one for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedprint.data.formats.files import write_json
from fedprint.kinds import PRELOADED
from fedprint.kinds.base import Findings, Kind, Resolved
from fedprint.kinds.hardware import AUTO, Hardware
from fedprint.lab.gpus import Gpus, gpu_count
from fedprint.lab.graph import Job
from fedprint.lab.machine import cores
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.origin import flat
from fedprint.lab.tracking.runs import Run, RunHead, is_finished, open_run
from fedprint.lab.tracking.views import View, save_view
from fedprint.lab.versions.cleaning import JOBS
from fedprint.lab.workers.pool import LocalPool, Pool
from fedprint.lab.workers.ray_pool import RayPool
from fedprint.types import FedprintError


@contextmanager
def laboratory(
    root: Path,
    kind: Kind[Any],
    config: Resolved,
    *,
    jobs: int | None = None,
    keep: bool = False,
    pool: Pool | None = None,
    hardware: Hardware = AUTO,
) -> Iterator[Lab]:
    """Open a lab on this machine's cores, in an open ``pool`` or one of its own, which tracks its jobs."""
    tracker = Tracker(root=root, kind=kind, config=config)
    with (
        nullcontext(pool) if pool else LocalPool(PRELOADED) as running,
        tracker,
        lab_in(root, running, jobs=jobs, keep=keep, tracker=tracker, hardware=hardware) as lab,
    ):
        yield lab


def lab_in(
    root: Path,
    pool: Pool,
    *,
    jobs: int | None = None,
    keep: bool = False,
    tracker: Tracker | None,
    hardware: Hardware = AUTO,
) -> Lab:
    """Return a lab in a pool: by default with a job at a time for each core, on a cluster with GPUs for each of these.

    Raises FedprintError where there are fewer GPUs than the ``hardware`` asks for.
    """
    if isinstance(pool, RayPool):
        gpus = hardware.gpus(pool.gpus)
        jobs = min(jobs or gpus, gpus) if gpus else jobs or max(pool.cpus, 1)  # of GPUs there, each call takes one
    else:
        gpus = hardware.gpus(gpu_count())
    borrows = not gpus and hardware.accelerator == "auto"
    return Lab(root=root, pool=pool, jobs=jobs or cores(), keep=keep, watcher=tracker, gpus=Gpus(gpus), borrows=borrows)


def conclude(root: Path, kind: Kind[Any], config: Resolved, findings: Findings, folder: Path) -> None:
    """Track the report, and write beside it which results it was made from and where MLflow has them."""
    write_json(folder / JOBS, jobs_json(findings.done))
    write_json(folder / "tracked.json", _tracked(root, kind, config, findings))
    head = RunHead(
        experiment="fedprint reports",
        key={"experiment": config.name, "config": config.digest(), "part": "report"},
        name=f"{config.name} report",
        params={**dict(flat(yaml.safe_load(config.text()))), "config_hash": config.digest(), "fast": config.fast},
        tags={"kind": kind.name},
        data=findings.data,
        group=config.name,
        description=f"Report of {config.name}",
    )
    with open_run(root, head, computes=False) as tracked:
        tracked.log_metrics([*((f"headline/{name}", value, 0) for name, value in findings.metrics.items())])
        tracked.log_metrics(findings.points)
        tracked.log_artifacts(folder)
        for label, reason in findings.failures.items():
            tracked.fail(f"{label}: {reason}")


def jobs_json(done: Sequence[Done]) -> dict[str, Any]:
    """Return jobs by their label, so that each can be found again: its settings, and the keys of its results."""
    return {
        one.job.label: {
            "work": one.job.work.path,
            "config": one.job.config.model_dump(mode="json"),
            "prior": one.job.prior,
            "seed": one.job.seed,
            "keys": dict(one.keys),
        }
        for one in done
    }


def _tracked(root: Path, kind: Kind[Any], config: Resolved, findings: Findings) -> dict[str, str | None]:
    """Return MLflow's experiment and group of the jobs, and the view of them that is saved where there is one."""
    if not findings.done:
        return {"experiment": "fedprint", "group": config.name, "view": None}
    experiment = kind.head(config, findings.done[0].job).experiment
    view = None
    if findings.compared:
        numbers = {
            name
            for done in findings.done
            for name, value in done.job.varies.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        view = View(
            experiment=experiment,
            group=config.name,
            name=config.name,
            params=sorted(numbers),
            metrics=findings.compared,
            scatter=(findings.compared[0], findings.compared[1]) if len(findings.compared) > 1 else None,
        )
        save_view(root, view)
    return {"experiment": experiment, "group": config.name, "view": view.key if view else None}


@dataclass
class Tracker:
    """Tracks the jobs of an experiment: a run each, opened when its first stage is computed."""

    root: Path
    kind: Kind[Any]
    config: Any
    _open: set[Tracked] = field(default_factory=set)

    def __enter__(self) -> Tracker:
        """Return the tracker."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the runs of jobs that did not end, as killed."""
        for tracked in tuple(self._open):
            tracked.run.kill()
            tracked.close()

    def watch(self, job: Job, *, computes: bool) -> Tracked | None:
        """Open the run of a job; a finished run of one that ``computes`` nothing is left as it is."""
        closing, head = ExitStack(), self.kind.head(self.config, job)
        if not computes and is_finished(self.root, head):
            return None
        run = closing.enter_context(open_run(self.root, head, computes=computes))
        tracked = Tracked(tracker=self, closing=closing, run=run)
        self._open.add(tracked)
        return tracked

    def forget(self, tracked: Tracked) -> None:
        """Drop a closed run."""
        self._open.discard(tracked)


@dataclass(eq=False)
class Tracked:
    """The open run of one job."""

    tracker: Tracker
    closing: ExitStack
    run: Run

    def receive(self, message: Mapping[str, Any]) -> None:
        """Write a message of a stage."""
        self.run.log_message(message)

    def failed(self, error: FedprintError) -> None:
        """Close the run as failed."""
        self.run.fail(str(error))
        self.close()

    def done(self, done: Done) -> None:
        """Track the results of the job, where its last stage is done, and close the run."""
        last = done.job.work.graph.stages[-1]
        if all(output in done.outputs for output in last.outputs):
            self.tracker.kind.log(self.tracker.config, done, self.run)
        self.close()

    def close(self) -> None:
        """Close the run."""
        self.tracker.forget(self)
        self.closing.close()
