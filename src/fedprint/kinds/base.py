"""What a kind of experiment is: one folder here and one line in registry.py.

Its page is in reports/pages/, and its table for the terminal in reports/pages/terminal.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedprint.data.sources.registry import may_be_shared
from fedprint.kinds.hardware import AUTO, Hardware
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.runs import DataUse, Point, Run, RunHead
from fedprint.lab.versions.dvc_yaml import Plot


@dataclass(frozen=True, kw_only=True)
class Request:
    """The request of a user: the ``values`` of a file, ``fast`` and ``assignments`` that change them, and a ``name``.

    ``name`` is that of the report: the file's, or a variant's where something differs from the file. ``hardware`` is
    what computes it, of which no other value says anything.
    """

    root: Path
    path: Path
    values: Mapping[str, Any]
    name: str
    fast: bool = False
    assignments: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    hardware: Hardware = AUTO


class Resolved(Protocol):
    """The configuration of a kind, checked and complete."""

    @property
    def name(self) -> str:
        """Name of its report."""

    @property
    def fast(self) -> bool:
        """Whether its ``fast`` section was used."""

    def digest(self) -> str:
        """Return a hash of everything that numbers depend on."""

    def text(self) -> str:
        """Return it as YAML."""


Config = TypeVar("Config", bound=Resolved, contravariant=True)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A plot as DVC shows it, and the ``rows`` of its table; no times, so that equal runs draw equal plots."""

    plot: Plot
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The results of a kind's jobs: a report in its folder, and what of it is tracked and versioned.

    ``metrics`` are the few numbers of DVC's and MLflow's tables; ``points`` what a chart shows besides. ``done`` are
    the jobs behind it, ``failures`` the reasons of missing ones. ``data`` are the data sets in use, and DVC draws the
    ``plots``. ``compared`` are metrics that MLflow plots against what varies between the jobs. A report that
    ``shows_data`` holds examples, and leaves this machine only where the data may. ``reads`` names the published
    experiments whose measurements it shows. ``users`` says whom it is about, where that is declared: development or
    confirmation users, or both.
    """

    metrics: Mapping[str, float]
    points: Sequence[Point] = ()
    done: Sequence[Done] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    data: Sequence[DataUse] = ()
    plots: Sequence[Drawn] = ()
    compared: Sequence[str] = ()
    shows_data: bool = False
    reads: Sequence[str] = ()
    users: str | None = None


FEWER = "take fewer users or rounds (federation.rounds, threat.shadow_rounds), record fewer layers (store.layers)"
"""What makes a run smaller."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The costs of an experiment: ``seconds`` of one core for ``jobs``, bytes of ``disk`` and, for one job, ``memory``.

    ``passing`` is the part of ``disk`` that the largest job lets go at its end, None where all stays. ``details`` are
    further lines for ``--dry-run``, ``warnings`` sentences about the experiment itself.
    """

    jobs: int
    seconds: float
    disk: int
    memory: int
    passing: int | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def space(self, at_a_time: int, *, keep: bool) -> int:
        """Return the bytes of disk that are in use at a time; ``keep``: all updates stay."""
        return self.disk if keep or self.passing is None else min(self.disk, at_a_time * self.passing)

    def beyond(self, at_a_time: int, *, memory: int, disk: int, keep: bool = False) -> list[str]:
        """Return what a machine lacks, with so many jobs ``at_a_time``: bytes of all its memory, of free ``disk``."""
        need, lacks = self.memory * at_a_time, []
        if need > memory:
            remedy = "--jobs 1 needs less" if self.memory <= memory else FEWER
            lacks.append(f"memory: {need / 2**30:.1f} GiB at most, of {memory / 2**30:.1f} GiB here; {remedy}.")
        if (space := self.space(at_a_time, keep=keep)) > disk:
            stops = "or use a larger disk; a run stops where it does not fit"
            lacks.append(f"disk: {space / 2**30:.1f} GiB, of {disk / 2**30:.1f} GiB free here; {FEWER}, {stops}.")
        return lacks


class Kind(Protocol[Config]):
    """A kind of experiment.

    ``mark`` is the key that only its files have (None: files without any mark). ``code`` are the sources below
    src/fedprint, besides those of the stages, that its numbers depend on.
    """

    @property
    def name(self) -> str:
        """Return the name of the kind."""

    @property
    def mark(self) -> str | None:
        """Return the mark of its files."""

    @property
    def code(self) -> tuple[str, ...]:
        """Return the code besides that of the stages."""

    def load(self, request: Request) -> Any:
        """Return the configuration. Raises FedprintError (one line) for what does not fit."""

    def jobs(self, config: Config) -> Sequence[Job]:
        """Return all jobs that are known beforehand."""

    def carry_out(self, config: Config, lab: Lab, out: Path) -> Findings:
        """Run the jobs in the lab and write the report to ``out``, which appears as a whole or not at all."""

    def costs(self, config: Config, device: str) -> Costs:
        """Return the costs on a ``device`` (cpu, cuda), from short measurements; write nothing."""

    def head(self, config: Config, job: Job) -> RunHead:
        """Return the head of the MLflow run of a job."""

    def log(self, config: Config, done: Done, run: Run) -> None:
        """Track the results of a finished job."""

    def shareable(self, config: Config) -> bool:
        """Return whether the data, by their own declaration, may leave this machine."""


def data_of(config: Any) -> Any:
    """Return the data source of a configuration, or of the experiment that it is about."""
    return getattr(config, "config", config).data


class OnOneSource:
    """What kinds of experiments on one data source share."""

    code: tuple[str, ...] = ()

    def shareable(self, config: Any) -> bool:
        """Return whether the data, by their own declaration, may leave this machine."""
        return may_be_shared(data_of(config), None)
