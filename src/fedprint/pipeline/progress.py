"""Progress of long work: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_EVERY_S = 10.0


class Meter:
    """Counts finished units of work and shows them with a note."""

    def __init__(self, title: str, total: int, bar: Progress | None) -> None:
        self._title, self._total, self._bar = title, total, bar
        self._task = bar.add_task(title, total=total, note="") if bar else None
        self._start = self._last = time.monotonic()

    def update(self, done: int, note: str = "") -> None:
        """Show ``done`` of the total; without a terminal at most every ten seconds, and at the end."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, note=note)
            return
        now = time.monotonic()
        if done < self._total and now - self._last < _EVERY_S:
            return
        self._last = now
        left = (now - self._start) / max(done, 1) * (self._total - done)
        print(f"{self._title} {done}/{self._total}  {note}  ETA {left:.0f} s", flush=True)


@contextmanager
def meter(title: str, total: int) -> Iterator[Meter]:
    """Open a progress display on standard output (DVC hands a terminal through) for ``total`` units of work."""
    console = Console()
    if not console.is_terminal:
        yield Meter(title, total, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as bar:
        yield Meter(title, total, bar)
