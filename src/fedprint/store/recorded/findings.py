"""What is wrong with a recorded folder: findings with file, row and remedy, and the paths that may not leave it."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedprint.errors import FedprintError

_SHOWN = 200
"""Findings that a message holds at most; ``findings`` of the error holds all."""
_QUOTED = 80
"""Characters of a foreign value that a message quotes at most."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One problem: ``what`` is wrong in ``file`` (relative to the folder), and the ``remedy``.

    ``row`` is the line of a text file as an editor counts it, or the row of a Parquet table from 1; None for all of it.
    """

    file: str
    row: int | None = None
    what: str
    remedy: str

    def __str__(self) -> str:
        place = quoted(self.file) if self.row is None else f"{quoted(self.file)}, row {self.row}"
        return f"{place}: {self.what}; {self.remedy}"


class RecordingRefused(FedprintError):
    """A recorded folder that cannot be audited; ``findings`` holds every problem, the message one per line."""

    def __init__(self, folder: Path, findings: Sequence[Finding]) -> None:
        """Keep the findings and list them."""
        self.findings = tuple(findings)
        lines = [f"  {finding}" for finding in self.findings[:_SHOWN]]
        more = len(self.findings) - len(lines)
        lines += [f"  and {more} more of these"] if more else []
        count = "1 problem" if len(self.findings) == 1 else f"{len(self.findings)} problems"
        super().__init__("\n".join([f"{folder}: {count}", *lines]))


class Unreadable(Exception):
    """Why one file cannot be read, with the remedy; callers make a finding of it."""

    def __init__(self, what: str, remedy: str) -> None:
        """Keep both."""
        super().__init__(what)
        self.what, self.remedy = what, remedy


def quoted(value: object) -> str:
    """Return a foreign value on one short line without control characters."""
    text = "".join(c if c.isprintable() else "?" for c in str(value)[: _QUOTED + 1])
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the nearest known one, else all of them."""
    options = sorted(known)
    near = difflib.get_close_matches(name, options, n=1)
    return f"did you mean '{near[0]}'?" if near else f"choose from {', '.join(options)}, or drop it"


def inside(folder: Path, path: str) -> Path:
    """Return ``folder / path``. Raises Unreadable where that is not inside of the folder, also through a link."""
    if not path or "\0" in path or Path(path).is_absolute() or ".." in Path(path).parts:
        raise Unreadable(f"path '{quoted(path)}' leaves the folder", "give a path inside of it, without '..'")
    try:
        resolved = (folder / path).resolve()
        if not resolved.is_relative_to(folder.resolve()):
            raise Unreadable(f"'{quoted(path)}' is a link out of the folder", "copy the file into it")
        resolved.lstat()
    except (OSError, RuntimeError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({type(error).__name__})"
        raise Unreadable(f"'{quoted(path)}' {why}", "correct the path or bring the file") from None
    return resolved


def regular(path: Path) -> Path:
    """Return the path of a regular file. Raises Unreadable for anything else (a pipe would never end)."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise Unreadable("is not a regular file", "give the path of a file")
    return path
