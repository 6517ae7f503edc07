"""Where a project is, and who is writing one of its reports."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedprint.errors import FedprintError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*")


def find_root(start: Path | None = None) -> Path:
    """Return the project's root.

    That is FEDPRINT_ROOT when set, else the nearest folder at or above ``start`` (default: the current one) that holds
    both pyproject.toml and dvc.yaml. Raises FedprintError when there is none.
    """
    named = os.environ.get("FEDPRINT_ROOT")
    if named:
        if _is_root(Path(named)):
            return Path(named).resolve()
        raise FedprintError(
            f"FEDPRINT_ROOT={named} holds no pyproject.toml and dvc.yaml: point it at the project, or unset it"
        )
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if _is_root(folder):
            return folder
    raise FedprintError(f"{here} is not inside a fedprint project: change into the clone, or set FEDPRINT_ROOT")


def _is_root(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() and (folder / "dvc.yaml").is_file()


def checked_name(name: str) -> str:
    """Return the name of an experiment; FedprintError for one that is no name of a folder."""
    if not NAME.fullmatch(name):
        raise FedprintError(f"'{name}' is no name for an experiment: use letters, digits, '-', '_', '=' and '.'")
    return name


@contextmanager
def writing(root: Path, name: str) -> Iterator[None]:
    """Hold the report of an experiment; raises FedprintError at once when another process has it.

    The operating system frees it when its holder ends, however it ends.
    """
    path = root / "work" / "locks" / f"{checked_name(name)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FedprintError(f"'{name}' is running in another process: wait for it, or stop it") from None
        yield
