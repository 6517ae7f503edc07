"""How any experiment is run: resolve, jobs through the lab, report, tracking, versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedprint.data.files import write_json
from fedprint.kinds.base import Findings, Kind, Resolved, Source
from fedprint.kinds.registry import kind_of
from fedprint.lab.graph import Job
from fedprint.lab.pool import LocalPool, Pool
from fedprint.lab.project import writing
from fedprint.lab.runner import Done, Lab, cores
from fedprint.lab.tracking import Run, RunHead, open_run
from fedprint.types import FedprintError

PRELOADED = ("fedprint.kinds.preload",)
"""What the processes that stages run in have imported."""


class SomeFailed(FedprintError):
    """Some jobs failed; the others' results and the report are written."""

    exit_code = 1


def run(source: Source, *, jobs: int | None = None, keep: bool = False) -> Path:
    """Run an experiment of any kind; return the folder of its report.

    ``jobs`` run at a time (default: one per core). Raises FedprintError where nothing could be reported, and
    :class:`SomeFailed` where a part is missing.
    """
    kind = kind_of(source.values)
    config = kind.load(source)
    folder = source.root / "reports" / config.name
    with writing(source.root, config.name), laboratory(source.root, kind, config, jobs=jobs, keep=keep) as lab:
        findings = kind.carry_out(config, lab, folder)
        conclude(source.root, kind, config, findings, folder)
    if findings.failures:
        listed = "; ".join(f"{label}: {reason}" for label, reason in list(findings.failures.items())[:5])
        raise SomeFailed(
            f"{len(findings.failures)} of {len(findings.failures) + len(findings.done)} jobs of '{config.name}' failed "
            f"({listed}); mend them and repeat the command: what is finished is kept"
        )
    return folder


@contextmanager
def laboratory(
    root: Path, kind: Kind[Any], config: Resolved, *, jobs: int | None = None, keep: bool = False
) -> Iterator[Lab]:
    """Open a lab on this machine's cores, which tracks its jobs."""
    with LocalPool(PRELOADED) as pool, Tracker(root=root, kind=kind, config=config) as tracker:
        with lab_in(root, pool, jobs=jobs, keep=keep, tracker=tracker) as lab:
            yield lab


def lab_in(root: Path, pool: Pool, *, jobs: int | None = None, keep: bool = False, tracker: Tracker | None) -> Lab:
    """Return a lab in a pool."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Lab(root=root, pool=pool, jobs=jobs or cores(), keep=keep, watcher=tracker, device=device)


def conclude(root: Path, kind: Kind[Any], config: Resolved, findings: Findings, folder: Path) -> None:
    """Track the report, and note beside it which results it was made from."""
    write_json(folder / "jobs.json", {done.job.label: dict(done.keys) for done in findings.done})
    head = RunHead(
        experiment="fedprint reports",
        key={"experiment": config.name, "config": config.digest(), "part": "report"},
        name=f"{config.name} report",
        params={"config_hash": config.digest(), "fast": config.fast},
        tags={"kind": kind.name},
        data=findings.data,
        group=config.name,
    )
    with open_run(root, head, system=False) as tracked:
        tracked.log_metrics([*((f"headline/{name}", value, 0) for name, value in findings.metrics.items())])
        tracked.log_metrics(findings.points)
        tracked.log_artifacts(folder)
        for label, reason in findings.failures.items():
            tracked.fail(f"{label}: {reason}")


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

    def watch(self, job: Job, *, computes: bool) -> Tracked:
        """Open the run of a job; one that ``computes`` nothing is tracked where it is not known yet."""
        closing = ExitStack()
        run = closing.enter_context(open_run(self.root, self.kind.head(self.config, job), system=computes))
        tracked = Tracked(tracker=self, closing=closing, run=run, computes=computes)
        self._open.add(tracked)
        return tracked

    def forget(self, tracked: Tracked) -> None:
        """Hear that a run is closed."""
        self._open.discard(tracked)


@dataclass(eq=False)
class Tracked:
    """The open run of one job."""

    tracker: Tracker
    closing: ExitStack
    run: Run
    computes: bool

    def told(self, message: Mapping[str, Any]) -> None:
        """Write what a stage tells."""
        self.run.told(message)

    def failed(self, error: FedprintError) -> None:
        """Close the run as failed."""
        self.run.fail(str(error))
        self.close()

    def done(self, done: Done) -> None:
        """Write what the job found, and close the run."""
        if self.computes or not self.run.known:
            self.tracker.kind.log(self.tracker.config, done, self.run)
        self.close()

    def close(self) -> None:
        """Close the run."""
        self.tracker.forget(self)
        self.closing.close()
