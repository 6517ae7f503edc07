"""One cache for every kind of work: ``work/cache/<stage>/<key>/<output>``, one rule for locks, one for resuming.

An entry gets its name when it is complete, so that a killed stage leaves nothing that reads as finished. The process
that makes an entry holds its lock alone, processes that use it share the lock, and a process that drops it must get the
lock alone. The operating system frees the locks of a process that ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedprint.errors import FedprintError

SCRATCH = ".scratch"
_LOCKS, _PARTIAL = ".locks", ".partial"


@dataclass(frozen=True)
class Entry:
    """The output of one stage under one key: a folder that exists once it is complete."""

    folder: Path

    @property
    def finished(self) -> bool:
        """Whether it is complete."""
        return self.folder.is_dir()

    @property
    def partial(self) -> Path:
        """The folder while its stage writes it."""
        return self.folder.with_name(f".{self.folder.name}{_PARTIAL}")

    @property
    def scratch(self) -> Path:
        """The folder of temporary files of its stage."""
        return self.partial / SCRATCH

    def begin(self, *, resume: bool) -> None:
        """Make the folder that the stage writes: empty, or with ``resume`` as a killed stage left it."""
        if not resume:
            shutil.rmtree(self.partial, ignore_errors=True)
        self.scratch.mkdir(parents=True, exist_ok=True)

    def complete(self) -> None:
        """Give it its name."""
        shutil.rmtree(self.scratch)
        self.partial.rename(self.folder)

    def remove(self) -> None:
        """Take its name away, then its files: half a folder must not read as finished."""
        shutil.rmtree(self.partial, ignore_errors=True)
        if self.finished:
            self.folder.rename(self.partial)
            shutil.rmtree(self.partial)


@dataclass(frozen=True)
class Cache:
    """Entries below a ``folder``."""

    folder: Path

    @classmethod
    def of(cls, root: Path) -> Cache:
        """Return the cache of a project."""
        return cls(root.resolve() / "work" / "cache")

    @classmethod
    def direct(cls, root: Path) -> Cache:
        """Return the cache of results that were computed from files elsewhere, which no key describes."""
        return cls(root.resolve() / "work" / "direct")

    def entry(self, stage: str, key: str) -> Entry:
        """Return the entry of a stage under a key, finished or not."""
        return Entry(self.folder / stage / key)

    @contextmanager
    def making(self, entry: Entry) -> Iterator[None]:
        """Hold an entry alone; waits while another process makes or uses it."""
        with self._locked(entry, fcntl.LOCK_EX):
            yield

    @contextmanager
    def making_if_free(self, entry: Entry) -> Iterator[bool]:
        """Hold an entry alone if no other process makes or uses it; yields whether it is held."""
        with self._lock_file(entry) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    @contextmanager
    def using(self, entry: Entry) -> Iterator[None]:
        """Keep an entry from being dropped meanwhile."""
        with self._locked(entry, fcntl.LOCK_SH):
            yield

    def drop(self, entry: Entry) -> bool:
        """Remove an entry unless another process makes or uses it; return whether it is gone."""
        with self.making_if_free(entry) as free:
            if free:
                entry.remove()
        return free

    def unneeded(self, keep: Collection[Path]) -> list[Entry]:
        """Return all entries, finished or partial, whose folders are not among ``keep`` and that no process uses now.

        Raises FedprintError while a run makes or uses one of them.
        """
        folders = {path for path in self.folder.glob("*/*") if path.parent.name != _LOCKS and path.name != _LOCKS}
        names = {path.with_name(path.name[1:].removesuffix(_PARTIAL)) for path in folders if path.name.startswith(".")}
        names |= {path for path in folders if not path.name.startswith(".")}
        entries = [Entry(path) for path in sorted(names) if path not in keep]
        for entry in entries:
            with self.making_if_free(entry) as free:
                if not free:
                    raise FedprintError("a run is using the cache: wait for it, or stop it, before cleaning")
        return entries

    @contextmanager
    def _locked(self, entry: Entry, how: int) -> Iterator[None]:
        with self._lock_file(entry) as file:
            fcntl.flock(file, how)
            yield

    def _lock_file(self, entry: Entry) -> IO[bytes]:
        path = entry.folder.parent / _LOCKS / entry.folder.name
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC), "r+b")
