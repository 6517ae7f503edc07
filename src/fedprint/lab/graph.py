"""A unit of work and the stages that it consists of: the declaration that runner, cache, DVC and threat model read.

A :class:`Stage` names what it may open and what it writes. That list is the threat model: a stage runs in a process of
its own that can open nothing else (:mod:`fedprint.lab.workers.sandbox`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from fedprint.errors import FedprintError


class Settings(Protocol):
    """A frozen configuration of a job, as its stages read it."""

    def section_digest(self, *sections: str) -> str:
        """Return a hash of some sections (``a``) or settings (``a.b``)."""

    def digest(self) -> str:
        """Return a hash of everything that numbers depend on."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return the values (pydantic)."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of a job.

    ``run`` is ``module:function``, called with a :class:`Task`. ``inputs`` are outputs of stages before it;
    ``outputs`` are files or folders that it writes. ``settings`` are the sections of the configuration that it reads
    (None: all of them), ``code`` the sources below src/fedprint that its numbers depend on. ``data`` lets it open the
    data folder, ``files`` those that settings name. A killed stage that ``resumes`` finds its unfinished outputs again.
    Stages after a ``settled`` one depend on what it wrote, not on how (a choice that a trial made). ``heavy`` outputs
    are dropped after the job, unless updates are to be kept. ``connects`` is ``module:function``, called with the
    configuration before the process is confined, to connect to a service whose files the stage may not open.
    """

    name: str
    run: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...]
    settings: tuple[str, ...] | None = ()
    code: tuple[str, ...] = ()
    data: bool = False
    files: bool = False
    resumes: bool = False
    settled: bool = False
    heavy: bool = False
    connects: str | None = None

    def function(self) -> Callable[[Task], Any]:
        """Import and return the function; late, because each stage needs other libraries."""
        function: Callable[[Task], Any] = _named(self.run)
        return function

    def connect(self, config: Settings) -> None:
        """Connect to the service that the stage uses, if the configuration asks for it."""
        if self.connects is not None:
            _named(self.connects)(config)


@dataclass(frozen=True)
class Graph:
    """The stages of one kind of job, each after those whose outputs it opens."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        """Refuse an input that no stage before writes, and two stages that write the same."""
        known: set[str] = set()
        for stage in self.stages:
            if missing := set(stage.inputs) - known:
                raise FedprintError(f"stage '{stage.name}' opens {sorted(missing)}, which no stage before it writes")
            if twice := known & set(stage.outputs):
                raise FedprintError(f"stage '{stage.name}' writes {sorted(twice)}, as a stage before it does")
            known |= set(stage.outputs)

    def stage(self, name: str) -> Stage:
        """Return a stage by its name."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        known = ", ".join(stage.name for stage in self.stages)
        raise FedprintError(f"unknown stage '{name}'; choose of {known}")

    def maker(self, output: str) -> Stage:
        """Return the stage that writes ``output``."""
        return next(stage for stage in self.stages if output in stage.outputs)

    def before(self, name: str) -> tuple[Stage, ...]:
        """Return the stages that a stage needs, directly or not, in order."""
        wanted = {name}
        for stage in reversed(self.stages):
            if stage.name in wanted:
                wanted |= {self.maker(each).name for each in stage.inputs}
        return tuple(stage for stage in self.stages if stage.name in wanted - {name})


@dataclass(frozen=True, kw_only=True)
class Work:
    """A kind of job: its stages, and how a configuration is read back from JSON.

    ``path`` is ``module:NAME`` of this very value, by which another process finds it. ``wanted`` are the stages whose
    results a report is made from (None: all of them), ``recorded`` those that are wanted too where updates are kept.
    """

    path: str
    graph: Graph
    parse: Callable[[Mapping[str, Any]], Settings]
    wanted: tuple[str, ...] | None = None
    recorded: tuple[str, ...] = ()

    @staticmethod
    def named(path: str) -> Work:
        """Return the value at ``module:NAME``."""
        work: Work = _named(path)
        return work


@dataclass(frozen=True, kw_only=True)
class Job:
    """One unit of work: a configuration under one prior and seed.

    ``data`` is the digest of the data and ``data_at`` where they are, ``files`` that of the files which settings name
    and ``files_at`` where those are. ``label`` is what progress and failures show. ``varies`` says, for tracking alone,
    how the job differs from others of its kind (strategy, strength, trial).
    """

    work: Work
    config: Settings
    prior: str
    seed: int
    data: str
    files: str = "none"
    label: str = ""
    data_at: tuple[str, ...] = ()
    files_at: tuple[str, ...] = ()
    varies: Mapping[str, Any] = field(default_factory=dict)

    @property
    def item(self) -> str:
        """The job's name among those of its experiment, as in folder names."""
        return f"{self.prior}-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A stage of a job while it runs: where its inputs and outputs are, and how it reports on itself.

    ``scratch`` is a folder for what must survive a kill or is temporary; it goes when the stage has ended. ``key``
    names the result. ``device`` is where it computes (cpu, cuda): the GPUs that its process sees are its own.
    """

    config: Any
    prior: Any
    seed: int
    paths: Mapping[str, Path]
    scratch: Path
    item: str
    key: str
    device: str = "cpu"
    send: Callable[[Mapping[str, Any]], None] = field(default=lambda message: None, repr=False)

    def at(self, name: str) -> Path:
        """Return the path of a declared input or output."""
        if name not in self.paths:
            raise FedprintError(f"'{name}' is not declared by this stage; it may open {', '.join(self.paths)}")
        return self.paths[name]

    def metrics(self, points: Sequence[tuple[str, float, int]]) -> None:
        """Send metrics (name, value, step) to the process that tracks the run."""
        if points:
            self.send({"metrics": [list(point) for point in points]})


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
