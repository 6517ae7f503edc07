"""Many points, several at a time: one process and one thread each, the same bits as one after another."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from filelock import FileLock, Timeout

from fedprint.data.splits import Prior
from fedprint.evaluation.tradeoff import Point
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.plane.points import run_point
from fedprint.kinds.workspace import find_root
from fedprint.lab.allocator import keep_freed_memory
from fedprint.lab.progress import meter
from fedprint.types import FedprintError


@dataclass(frozen=True, kw_only=True)
class PointRequest:
    """A point to compute; ``label`` is what progress shows."""

    config: Experiment
    prior: Prior
    seed: int
    label: str = ""


class Labelled(Protocol):
    """A request for work in another process."""

    @property
    def label(self) -> str:
        """What progress shows."""


Request = TypeVar("Request", bound=Labelled)
Result = TypeVar("Result")


def run_points(requests: Sequence[PointRequest], *, jobs: int, title: str) -> list[Point | FedprintError]:
    """Return the points in the order of the requests; where one could not be computed, the reason (:func:`run_all`)."""
    return run_all(compute, requests, jobs=jobs, title=title)


def run_all(
    work: Callable[[Request], Result], requests: Sequence[Request], *, jobs: int, title: str
) -> list[Result | FedprintError]:
    """Return ``work(request)`` of every request, in their order, ``jobs`` at a time; errors of the user as values.

    What is printed goes to work/logs/<title>.<process>.log. Raises FedprintError when a process dies (memory, say).
    """
    results: list[Result | FedprintError | None] = [None] * len(requests)
    with one_thread(), _pool(jobs, title) as pool, meter(title, len(requests)) as bar:
        found = {pool.submit(work, request): position for position, request in enumerate(requests)}
        try:
            for done, future in enumerate(as_completed(found), 1):
                results[found[future]] = _result(future, title)
                bar.update(done, requests[found[future]].label)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # else the rest would be computed before anyone hears of it
            raise
    return [result for result in results if result is not None]


def _result(future: Future[Result], title: str) -> Result | FedprintError:
    try:
        return future.result()
    except FedprintError as error:
        return error
    except BrokenProcessPool:
        raise FedprintError(
            f"{title}: a worker process died, perhaps for lack of memory: repeat the command with fewer jobs "
            "(what is finished is kept)"
        ) from None


def compute(request: PointRequest) -> Point:
    """Return one point."""
    return run_point(request.config, request.prior, request.seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let processes started meanwhile use one thread each: libraries read these variables when they load."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_LOOK_S = 2.0
_HELD: list[FileLock] = []
"""Locks of this process, until it ends."""


def in_use(root: Path) -> bool:
    """Return whether a living worker process may be reading what points share."""
    return any(_is_held(path) for path in _process_locks(root).glob("process-*.lock"))


def start_worker(root: str, log: str) -> None:
    """Prepare a worker process: the project's root, a sign that it lives, and a file for what the stages print.

    It ends with the process that started it, whatever it is doing.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    keep_freed_memory()
    os.environ["FEDPRINT_ROOT"] = root
    _process_locks(Path(root)).mkdir(parents=True, exist_ok=True)
    _HELD.append(FileLock(_process_locks(Path(root)) / f"process-{os.getpid()}.lock"))
    _HELD[-1].acquire()
    path = Path(log).with_suffix(f".{os.getpid()}.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(sink, stream.fileno())
    os.close(sink)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: a killed sweep must not leave workers that compute for nobody."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)  # finished points are on the disk, unfinished ones under a name of their own


def _process_locks(root: Path) -> Path:
    return root / "work" / "points" / ".locks"


def _is_held(path: Path) -> bool:
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True


def _pool(jobs: int, title: str) -> ProcessPoolExecutor:
    root = find_root()
    # spawn: a forked copy of a process that has run torch's threads hangs
    context = multiprocessing.get_context("spawn")
    arguments = (str(root), str(root / "work" / "logs" / title))
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=start_worker, initargs=arguments)
