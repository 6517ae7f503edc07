"""The kind of experiment that is several others: their jobs side by side, a report of each and one of all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedprint.kinds.base import Costs, Drawn, Findings, Request
from fedprint.kinds.jobs import HOW_TO_GO_ON
from fedprint.kinds.suite.config import KindOf, Member, Suite, load_suite
from fedprint.lab.graph import Job
from fedprint.lab.progress import Board
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.runs import Run, RunHead
from fedprint.reports.pages.html import replacing
from fedprint.reports.pages.suite import MemberReport, write_suite
from fedprint.types import FedprintError

BETWEEN = ": "
"""Stands between a member's label and its job's."""


class SuiteKind:
    """Several experiments with attacks; ``kind_of`` says of which kind a member's values are."""

    name = "suite"
    mark = "members"
    code: tuple[str, ...] = ()

    def __init__(self, kind_of: KindOf) -> None:
        """Take the function that finds the kind of a member."""
        self._kind_of = kind_of

    def load(self, request: Request) -> Suite:
        """Return the suite of a file, all members resolved."""
        return load_suite(request, self._kind_of)

    def jobs(self, config: Suite) -> Sequence[Job]:
        """Return the jobs of all members, each under its member's name."""
        return [job for member in config.members for job in _jobs_of(member)]

    def carry_out(self, config: Suite, lab: Lab, out: Path) -> Findings:
        """Run all members' jobs side by side, then write each member's report and that of all.

        A member that fails does not stop the others. Raises FedprintError where all of them do.
        """
        ran = dict(zip(_labels(jobs := self.jobs(config)), lab.run(jobs, title=config.name), strict=True))
        findings: dict[str, Findings] = {}
        failures: dict[str, str] = {}
        with replacing(out) as partial:
            for member in config.members:
                try:
                    made = member.kind.carry_out(member.config, _lab_of(lab, member, ran), partial / member.label)
                except FedprintError as error:
                    failures[member.label] = str(error).removesuffix(HOW_TO_GO_ON)
                    continue
                findings[member.label] = made
                failures |= {f"{member.label}{BETWEEN}{job}": reason for job, reason in made.failures.items()}
            if not findings:
                raise FedprintError("; ".join(f"{label}{BETWEEN}{reason}" for label, reason in failures.items()))
            _write(config, partial, list(findings), failures)
        metrics = {f"{label}/{name}": value for label, one in findings.items() for name, value in one.metrics.items()}
        done = tuple(_named(label, each) for label, one in findings.items() for each in one.done)
        data = tuple({use.digest: use for one in findings.values() for use in one.data}.values())
        return Findings(
            metrics=metrics,
            points=[(f"{label}/{name}", value, t) for label, one in findings.items() for name, value, t in one.points],
            done=done,
            failures=failures,
            data=data,
            plots=[_of_member(label, drawn) for label, one in findings.items() for drawn in one.plots],
            shows_data=any(one.shows_data for one in findings.values()),
            users=_common({one.users for one in findings.values()}),
        )

    def costs(self, config: Suite, device: str) -> Costs:
        """Return the costs of all members together, and the time of each."""
        each = {member.label: member.kind.costs(member.config, device) for member in config.members}
        return Costs(
            jobs=sum(one.jobs for one in each.values()),
            seconds=sum(one.seconds for one in each.values()),
            disk=sum(one.disk for one in each.values()),
            memory=max(one.memory for one in each.values()),
            passing=max(one.passing or one.disk for one in each.values()),
            details={
                label: f"{one.jobs} jobs, {one.seconds / 60:.1f} min of one core, {one.disk / 2**20:.0f} MiB"
                for label, one in each.items()
            },
            warnings=[f"{label}: {text}" for label, one in each.items() for text in one.warnings],
        )

    def head(self, config: Suite, job: Job) -> RunHead:
        """Return the head of the MLflow run of a member's job, grouped by the suite."""
        member, job_of_member = _owner(config, job)
        return replace(member.kind.head(member.config, job_of_member), group=config.name)

    def log(self, config: Suite, done: Done, run: Run) -> None:
        """Track the results of a member's job."""
        member, job_of_member = _owner(config, done.job)
        member.kind.log(member.config, replace(done, job=job_of_member), run)

    def shareable(self, config: Suite) -> bool:
        """Return whether the data of all members may leave this machine."""
        return all(member.kind.shareable(member.config) for member in config.members)


@dataclass(kw_only=True)
class _MemberLab(Lab):
    """The lab of one member: jobs that the suite ``ran`` are finished, others run under the member's name."""

    whole: Lab
    member: str
    ran: Mapping[str, Done | FedprintError]

    def run(self, jobs: Sequence[Job], *, title: str) -> list[Done | FedprintError]:
        """Return how each job ended (:meth:`Lab.run`)."""
        named = {job.label: replace(job, label=_label(self.member, job)) for job in jobs}
        new = [job for job in named.values() if job.label not in self.ran]
        fresh = dict(zip(_labels(new), self.whole.run(new, title=title) if new else [], strict=True))
        ended = [{**self.ran, **fresh}[named[job.label].label] for job in jobs]
        return [replace(one, job=job) if isinstance(one, Done) else one for job, one in zip(jobs, ended, strict=True)]

    def one(self, job: Job, *, title: str, want: Sequence[str] | None = None, board: Board | None = None) -> Done:
        """Run one job (:meth:`Lab.one`)."""
        done = self.whole.one(replace(job, label=_label(self.member, job)), title=title, want=want, board=board)
        return replace(done, job=job)


def _lab_of(lab: Lab, member: Member, ran: Mapping[str, Done | FedprintError]) -> _MemberLab:
    shared = {name: getattr(lab, name) for name in ("root", "pool", "jobs", "keep", "watcher", "gpus")}
    return _MemberLab(**shared, whole=lab, member=member.label, ran=ran)


def _write(suite: Suite, folder: Path, members: Sequence[str], failures: Mapping[str, str]) -> None:
    """Write the suite's own files beside its members' folders."""
    reports = [
        MemberReport(name=member.label, experiment=member.experiment, folder=folder / member.label)
        for member in suite.members
        if member.label in members
    ]
    files = folder / ".own"
    write_suite(suite=suite.name, title=suite.title, fast=suite.fast, members=reports, failures=failures, out=files)
    for path in files.iterdir():
        path.rename(folder / path.name)
    files.rmdir()
    (folder / "config.yaml").write_text(suite.text(), encoding="utf-8")


def _label(member: str, job: Job) -> str:
    return f"{member}{BETWEEN}{job.label}"


def _labels(jobs: Sequence[Job]) -> list[str]:
    return [job.label for job in jobs]


def _owner(suite: Suite, job: Job) -> tuple[Member, Job]:
    """Return the member of a job, and the job under its own label."""
    label, _, rest = job.label.partition(BETWEEN)
    return next(member for member in suite.members if member.label == label), replace(job, label=rest)


def _jobs_of(member: Member) -> Iterator[Job]:
    for job in member.kind.jobs(member.config):
        yield replace(job, label=_label(member.label, job))


def _common(users: Collection[str | None]) -> str | None:
    """Return whom all members are about, None where they differ."""
    return next(iter(users)) if len(users) == 1 else None


def _of_member(label: str, drawn: Drawn) -> Drawn:
    """Return a member's plot under the member's name."""
    plot = drawn.plot
    return replace(drawn, plot=replace(plot, file=f"{label}-{plot.file}", title=f"{label}: {plot.title}"))


def _named(label: str, done: Done) -> Done:
    return replace(done, job=replace(done.job, label=_label(label, done.job)))
