"""The one way in which work is done: jobs through their stages, several at a time, each result computed once.

A job is run stage by stage. A stage whose result is in the cache is not run again; a killed one resumes where it
stopped. Every stage runs in a process of its own that can open its declared inputs and outputs alone.
"""

from __future__ import annotations

import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from fedprint.errors import FedprintError
from fedprint.lab.cache import Cache, Entry
from fedprint.lab.gpus import Gpus, start_gpus
from fedprint.lab.graph import Job, Stage, Task, Work
from fedprint.lab.keys import content_digest, stage_key
from fedprint.lab.progress import Board, send_progress
from fedprint.lab.workers.pool import Crashed, Lost, Pool, Stopped
from fedprint.lab.workers.sandbox import confine, refuse_exposed

RETRY_S = 0.05
GPU = "cuda"
LOST_AT_MOST = 3
"""How often a stage is run again because its machine was lost."""


class JobFailed(FedprintError):
    """A stage of a job failed: which, why, and where its output is. ``reason`` is the stage's own message."""

    def __init__(self, message: str, *, stage: str, exit_code: int, reason: str) -> None:
        """Keep what command lines and reports show."""
        super().__init__(message)
        self.stage, self.exit_code, self.reason = stage, exit_code, reason


@dataclass(frozen=True, kw_only=True)
class Done:
    """A finished job: its ``outputs`` by name, the stages' ``keys``, and whether all of it was ``known``.

    The watcher sees all outputs that exist; afterwards only those that were wanted or are kept remain.
    """

    job: Job
    outputs: Mapping[str, Path]
    keys: Mapping[str, str]
    known: bool


class Watcher(Protocol):
    """Tracks jobs while they run."""

    def watch(self, job: Job, *, computes: bool) -> Watch | None:
        """Return the tracker of one job, when its first stage ``computes`` or all of it was known, or None."""


class Watch(Protocol):
    """Tracks one job."""

    def receive(self, message: Mapping[str, Any]) -> None:
        """Take a message of a stage: metrics, parameters, tags."""

    def failed(self, error: FedprintError) -> None:
        """Take the error of a failed job."""

    def done(self, done: Done) -> None:
        """Take the results of a finished job."""


@dataclass
class Lab:
    """Runs jobs of the project ``root`` in a ``pool``, ``jobs`` of them at a time, on the ``gpus`` that it may use.

    ``keep`` leaves heavy outputs (updates, scores) in the cache, for another attack. A lab that ``borrows`` takes jobs
    that a GPU has finished elsewhere from the cache. Results stay in use, so that no other process drops them, until
    the lab is closed. What failed for a stated reason is not tried again in a lab.
    """

    root: Path
    pool: Pool
    jobs: int = 1
    keep: bool = False
    watcher: Watcher | None = None
    gpus: Gpus = field(default_factory=Gpus)
    borrows: bool = False
    _held: ExitStack = field(default_factory=ExitStack, repr=False)
    _used: set[Path] = field(default_factory=set, repr=False)
    _failed: dict[Path, FedprintError] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _said: set[str] = field(default_factory=set, repr=False)

    def __enter__(self) -> Lab:
        """Return the lab."""
        _allow_many_locks()
        return self

    def __exit__(self, *error: object) -> None:
        """Release the results in use, so that other processes may drop them."""
        self._held.close()

    @property
    def cache(self) -> Cache:
        """Where results are."""
        return Cache.of(self.root)

    @property
    def device(self) -> str:
        """Where stages compute: cuda where there are GPUs to use, else cpu."""
        return GPU if self.gpus.count else "cpu"

    @property
    def confined(self) -> tuple[Path, ...]:
        """The folders of results, which only stages that declare them may open."""
        return tuple(self.root / name for name in ("work", "experiments", "reports"))

    def run(self, jobs: Sequence[Job], *, title: str) -> list[Done | FedprintError]:
        """Return how each job ended, in their order: its results, or why there are none.

        Raises KeyboardInterrupt at once; what is finished is kept.
        """
        results: list[Done | FedprintError | None] = [None] * len(jobs)
        share = self._share(len(jobs))
        with Board(title, len(jobs)) as board, ThreadPoolExecutor(self.jobs) as threads:
            pending: dict[Future[Done], int] = {
                threads.submit(self._run, job, title, None, board, share): number for number, job in enumerate(jobs)
            }
            try:
                for future in as_completed(pending):
                    number = pending[future]
                    results[number] = _ended(future)
                    known = isinstance(done := results[number], Done) and done.known
                    board.ended(jobs[number].label, failed=isinstance(done, FedprintError), known=known)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self.pool.stop()
                raise
        return [one for one in results if one is not None]

    def one(self, job: Job, *, title: str, want: Sequence[str] | None = None, board: Board | None = None) -> Done:
        """Run one job, shown on a ``board`` of others if there is one; raise its error.

        ``want`` names the stages whose results are wanted (None: those that its kind of work wants).
        """
        return self._run(job, title, want, board, self._share(self.jobs))

    def knows(self, job: Job, stage: str) -> bool:
        """Return whether all that a stage of a job opens is in the cache; computes nothing."""
        with ExitStack() as held:
            return _Run(lab=self, job=job, title="", board=None, held=held, share=0).knows(stage)

    def run_on(self, job: Job, stages: Sequence[Stage], paths: Mapping[str, Path], *, title: str) -> Mapping[str, Path]:
        """Run stages on inputs that lie at ``paths`` or that stages before them made, and return all outputs.

        The outputs enter no cache; they stay as they are until the lab is closed. A missing input is left out.
        Raises :class:`JobFailed`.
        """
        made: dict[str, Path] = {}
        with Board(title, len(stages)) as board:
            run = _Run(lab=self, job=job, title=title, board=board, held=self._held, share=self._share(1))
            for stage in stages:
                known = {**paths, **made}
                made |= run.on(stage, {name: known[name] for name in stage.inputs if name in known})
                board.ended(job.label, failed=False, known=False)
        return made

    def say_once(self, text: str) -> None:
        """Print a note about this machine to stderr, once."""
        with self._lock:
            new = text not in self._said
            self._said.add(text)
        if new:
            print(text, file=sys.stderr, flush=True)

    def _share(self, jobs: int) -> int:
        """Return how many GPUs each of so many jobs may use at a time."""
        return max(1, self.gpus.count // max(1, min(jobs, self.jobs)))

    def _run(self, job: Job, title: str, want: Sequence[str] | None, board: Board | None, share: int) -> Done:
        with ExitStack() as held:
            run = _Run(lab=self, job=job, title=title, board=board, held=held, share=share)
            done = run.through(want)
            with self._lock:
                for stage in job.work.graph.stages:
                    entry = run.entries[stage.name]
                    # A heavy result that another job still uses is dropped by that job, so the lab does not hold it.
                    kept = not stage.heavy or any(output in done.outputs for output in stage.outputs)
                    if kept and entry.finished and entry.folder not in self._used:
                        self._held.enter_context(self.cache.using(entry))
                        self._used.add(entry.folder)
        return done


@dataclass
class _Run:
    """One job while it runs, each of its stages on a ``share`` of the GPUs."""

    lab: Lab
    job: Job
    title: str
    board: Board | None
    held: ExitStack
    share: int
    entries: dict[str, Entry] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    watch: Watch | None = None
    computed: bool = False
    device: str = field(init=False)

    def __post_init__(self) -> None:
        self.device = self.lab.device

    def through(self, want: Sequence[str] | None) -> Done:
        graph = self.job.work.graph
        wanted = self._wanted() if want is None else set(want)
        if self.lab.borrows:
            self._borrow(wanted)
        for stage in graph.stages:
            self._name(stage)
        for stage in self._missing(wanted):
            self._stage(stage)
        there = [stage for stage in graph.stages if self.entries[stage.name].finished]
        outputs = {output: self.entries[stage.name].folder / output for stage in there for output in stage.outputs}
        done = Done(job=self.job, outputs=outputs, keys=dict(self.keys), known=not self.computed)
        if self.watch is None and self.lab.watcher is not None:
            self.watch = self.lab.watcher.watch(self.job, computes=False)
        if self.watch is not None:
            self.watch.done(done)
        if self.lab.keep:
            return done
        self._drop(wanted)
        kept = {output: path for output, path in outputs.items() if graph.maker(output).name in wanted}
        return replace(done, outputs=kept)

    def _borrow(self, wanted: Iterable[str]) -> None:
        """Use a GPU's results if all that are wanted are in the cache. What a stage settled is its own machine's."""
        self.device = GPU
        stages = self.job.work.graph.stages
        if not any(stage.settled for stage in stages):
            for stage in stages:
                self._name(stage)
            if all(self._use(self.entries[name]) for name in wanted):
                return
        self.device = self.lab.device

    def _wanted(self) -> set[str]:
        work = self.job.work
        if work.wanted is None:
            return {stage.name for stage in work.graph.stages}
        return {*work.wanted, *(work.recorded if self.lab.keep else ())}

    def knows(self, name: str) -> bool:
        for stage in self.job.work.graph.before(name):
            self._name(stage, settle=False)
            if not self.entries[stage.name].finished:
                return False
        return True

    def _name(self, stage: Stage, *, settle: bool = True) -> None:
        """Find a stage's key; one that settles something is run at once, because the keys after it depend on that."""
        before = {output: self._identity(self.job.work.graph.maker(output)) for output in stage.inputs}
        key = self.keys[stage.name] = stage_key(self.job, stage, before, self.device)
        self.entries[stage.name] = self.lab.cache.entry(stage.name, key)
        if stage.settled and settle:
            self._stage(stage)

    def _identity(self, maker: Stage) -> str:
        if maker.settled:
            folder = self.entries[maker.name].folder
            return content_digest([folder / output for output in maker.outputs])
        return self.keys[maker.name]

    def _missing(self, wanted: Iterable[str]) -> list[Stage]:
        """Return the stages to run: those wanted and not there, and what these need."""
        needed, missing = set(wanted), []
        for stage in reversed(self.job.work.graph.stages):
            if stage.name in needed and not self._use(self.entries[stage.name]):
                missing.append(stage)
                needed |= {self.job.work.graph.maker(output).name for output in stage.inputs}
        return missing[::-1]

    def _use(self, entry: Entry) -> bool:
        """Keep a finished entry from being dropped until the job has ended; return whether it is finished."""
        with ExitStack() as lock:
            lock.enter_context(self.lab.cache.using(entry))
            if entry.finished:
                self.held.enter_context(lock.pop_all())
                return True
        return False

    def _stage(self, stage: Stage) -> None:
        entry = self.entries[stage.name]
        while not self._use(entry):  # waits while another makes it
            with self.lab.cache.making_if_free(entry) as free:
                # Another job may have made the entry just now. Its lab uses it until it closes: do not wait here.
                if not free:
                    time.sleep(RETRY_S)
                elif not entry.finished:
                    if self.watch is None and self.lab.watcher is not None and not stage.settled:
                        self.watch = self.lab.watcher.watch(self.job, computes=True)
                    self.computed = True
                    entry.begin(resume=stage.resumes)
                    maker = self.job.work.graph.maker
                    inputs = {name: self.entries[maker(name).name].folder / name for name in stage.inputs}
                    self._compute(stage, entry, inputs)

    def on(self, stage: Stage, inputs: Mapping[str, Path]) -> dict[str, Path]:
        """Run a stage on inputs at any path; no other process makes or removes its outputs while these are held."""
        before = {name: str(path.resolve()) for name, path in inputs.items()}
        cache = Cache.direct(self.lab.root)
        entry = cache.entry(stage.name, stage_key(self.job, stage, before, self.lab.device))
        if entry.folder not in self.lab._used:
            with cache.making(entry):
                entry.remove()
                entry.begin(resume=False)
                self._compute(stage, entry, inputs)
            self.held.enter_context(cache.using(entry))
            self.lab._used.add(entry.folder)
        return {name: entry.folder / name for name in stage.outputs}

    def _compute(self, stage: Stage, entry: Entry, inputs: Mapping[str, Path]) -> None:
        """Complete an entry that has begun. Raises :class:`JobFailed`."""
        if self.board:
            self.board.running(self.job.label, stage.name)
        paths = {**inputs, **{name: entry.partial / name for name in stage.outputs}}
        log = log_file(self.lab.root, self.title, self.job.label, stage.name)
        if known := self.lab._failed.get(entry.folder):
            raise self._failure(stage, known, log)
        try:
            refuse_exposed([*self.lab.confined, *map(Path, self.job.data_at)])
            self._call(stage, entry, call_of(self.job, stage, paths, entry, self.lab.device), log)
        except Stopped:
            raise
        except FedprintError as error:
            if not isinstance(error, Crashed):
                self.lab._failed[entry.folder] = error
            raise self._failure(stage, error, log) from None
        entry.complete()

    def _call(self, stage: Stage, entry: Entry, call: Mapping[str, Any], log: Path) -> None:
        """Run a stage in the pool, again where the machine that ran it was lost."""
        for left in range(LOST_AT_MOST, -1, -1):
            try:
                with self.lab.gpus.lent(self.share) as gpus:
                    self.lab.pool.run(STAGE, call, self._receiver(stage), log, gpus)
                return
            except Lost as error:
                if not left:
                    raise
                print(f"{self.job.label}: stage {stage.name}: {error}; it runs again", file=sys.stderr, flush=True)
                entry.begin(resume=stage.resumes)

    def _receiver(self, stage: Stage) -> Callable[[Mapping[str, Any]], None]:
        def receive(message: Mapping[str, Any]) -> None:
            if "progress" in message and self.board:
                _, done, total, note = message["progress"]
                self.board.running(self.job.label, f"{stage.name} {done}/{total} {note}".rstrip())
            elif "unguarded" in message:
                self.lab.say_once(message["unguarded"])
            elif "progress" not in message and self.watch:
                self.watch.receive(message)

        return receive

    def _failure(self, stage: Stage, error: FedprintError, log: Path) -> FedprintError:
        crashed = isinstance(error, Crashed)
        hint = f" (its output: {log})" if crashed else ""
        failure = JobFailed(
            f"{self.job.label}: stage {stage.name}: {error}{hint}",
            stage=stage.name,
            exit_code=1 if crashed else 2,
            reason=str(error),
        )
        if self.watch:
            self.watch.failed(failure)
        return failure

    def _drop(self, wanted: Iterable[str]) -> None:
        """Remove heavy results that are not wanted; another job that uses one keeps it."""
        self.held.close()
        for stage in self.job.work.graph.stages:
            if stage.heavy and stage.name not in wanted:
                self.lab.cache.drop(self.entries[stage.name])


STAGE = "fedprint.lab.runner:perform"
_ONLY_PYTHON = (
    "This kernel has no Landlock (Linux 5.13): only a Python hook keeps stages to their inputs, and no compiled library"
)


def call_of(job: Job, stage: Stage, paths: Mapping[str, Path], entry: Entry, device: str) -> dict[str, Any]:
    """Return the call that runs a stage, as JSON."""
    opened = [*(job.data_at if stage.data else ()), *(job.files_at if stage.files else ())]
    return {
        "work": job.work.path,
        "stage": stage.name,
        "config": job.config.model_dump(mode="json"),
        "prior": job.prior,
        "seed": job.seed,
        "item": job.item,
        "paths": {name: str(path) for name, path in paths.items()},
        "read": [*opened, *(str(paths[name]) for name in stage.inputs if name in paths)],
        "write": sorted({str(entry.scratch), *(str(paths[name].parent) for name in stage.outputs)}),
        "scratch": str(entry.scratch),
        "key": entry.folder.name,
        "device": device,
    }


def perform(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    """Run a stage in this process, which can open nothing else from then on."""
    import tempfile

    from fedprint.lab.workers.allocator import keep_freed_memory

    work = Work.named(call["work"])
    stage = work.graph.stage(call["stage"])
    function, config = stage.function(), work.parse(call["config"])
    keep_freed_memory()
    if call["device"] == GPU:
        start_gpus()
    send_progress(send)
    tempfile.tempdir = call["scratch"]
    task = Task(
        config=config,
        prior=call["prior"],
        seed=call["seed"],
        item=call["item"],
        key=call["key"],
        device=call["device"],
        paths={name: Path(path) for name, path in call["paths"].items()},
        scratch=Path(call["scratch"]),
        send=send,
    )
    stage.connect(config)
    if not confine([Path(path) for path in call["read"]], [Path(path) for path in call["write"]], name=stage.name):
        send({"unguarded": _ONLY_PYTHON})
    function(task)


def log_file(root: Path, title: str, label: str, stage: str) -> Path:
    """Return the file of a stage's output."""
    return root / "work" / "logs" / file_name(title) / f"{file_name(label)}.{stage}.log"


def file_name(text: str) -> str:
    """Return a title or label as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-") or "job"


def _ended(future: Future[Done]) -> Done | FedprintError:
    try:
        return future.result()
    except FedprintError as error:
        return error


def _allow_many_locks() -> None:
    """Let this process open as many files as the system allows: every result in use holds a lock."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS names a limit that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
