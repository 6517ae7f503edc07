"""Progress of long work: what a stage reports of itself, and one display of all jobs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

_EVERY_S = 10.0
_SILENT_S = 30.0
"""After so long without news a line says that work goes on."""
_listener: list[Callable[[Mapping[str, Any]], None]] = []
"""Where this process sends its progress instead of printing it: at most one."""


def send_progress(send: Callable[[Mapping[str, Any]], None]) -> None:
    """Make every :func:`meter` of this process send its progress instead of printing it."""
    _listener[:] = [send]


class Meter:
    """Counts finished units of work and shows them with a note, at most every ten seconds and at the end."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total = title, total
        self._start = self._last = time.monotonic()

    def update(self, done: int, note: str = "") -> None:
        """Show ``done`` of the total."""
        if _listener:
            _listener[0]({"progress": [self._title, done, self._total, note]})
        now = time.monotonic()
        if done < self._total and now - self._last < _EVERY_S:
            return
        self._last = now
        left = (now - self._start) / max(done, 1) * (self._total - done)
        print(f"{self._title} {done}/{self._total}  {note}  ETA {left:.0f} s", flush=True)


@contextmanager
def meter(title: str, total: int) -> Iterator[Meter]:
    """Open a progress display for ``total`` units of work."""
    yield Meter(title, total)


class Board:
    """One display of many jobs: done, running, failed, time left; live on a terminal, a line now and then elsewhere.

    Lines go to standard error, beside the results of the command. They come also while no job has news.
    Jobs that were done before the command (``known``) take no time and are left out of the estimate.
    """

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total = title, total
        self._done = self._known = self._failed = 0
        self._running: dict[str, str] = {}
        self._start = self._last = time.monotonic()
        self._ended = threading.Event()
        self._alive = threading.Thread(target=self._say_that_work_goes_on, daemon=True)
        console = Console()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._live = Progress(*columns, console=console) if console.is_terminal else None
        self._task = self._live.add_task(title, total=total, note="") if self._live else None

    def __enter__(self) -> Board:
        """Start the display."""
        if self._live:
            self._live.start()
        else:
            self._alive.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Show the final state."""
        self._ended.set()
        if self._alive.is_alive():
            self._alive.join()
        self._show(final=True)
        if self._live:
            self._live.stop()

    def running(self, label: str, note: str) -> None:
        """Show what a job is doing now."""
        self._running[label] = note
        self._show()

    def left(self, label: str) -> None:
        """Stop showing a job without counting it, as of one of several that make up a unit of work."""
        self._running.pop(label, None)

    def ended(self, label: str, *, failed: bool, known: bool) -> None:
        """Count a job."""
        self.left(label)
        self._done += 1
        self._failed += failed
        self._known += known and not failed
        self._show()

    def _show(self, final: bool = False) -> None:
        if self._live and self._task is not None:
            self._live.update(self._task, completed=self._done, note=self._note())
            return
        now = time.monotonic()
        if final or now - self._last >= _EVERY_S:
            self._last = now
            print(f"{self._title} {self._done}/{self._total}  {self._note()}", file=sys.stderr, flush=True)

    def _say_that_work_goes_on(self) -> None:
        while not self._ended.wait(min(_SILENT_S, _EVERY_S)):
            if time.monotonic() - self._last >= _SILENT_S:
                self._show(final=True)

    def _note(self) -> str:
        computed, elapsed = self._done - self._known, time.monotonic() - self._start
        parts = [", ".join(f"{label}: {note}" for label, note in list(self._running.items())[:3])]
        if elapsed >= 60:
            parts.append(f"{elapsed / 60:.0f} min")
        if self._failed:
            parts.append(f"{self._failed} failed")
        if computed and self._done < self._total:
            parts.append(f"ETA {elapsed / computed * (self._total - self._done):.0f} s")
        return "  ".join(part for part in parts if part)
