"""Where a project is, and who is writing one of its reports."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fedprint
from fedprint.errors import FedprintError

MARK = "fedprint-project"
"""The file by which a folder is a project, though it is no clone."""

SHIPPED = Path(fedprint.__file__).parent / "configs"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*")


def find_root(start: Path | None = None) -> Path:
    """Return the project's root.

    That is FEDPRINT_ROOT when set, else the nearest folder at or above ``start`` (default: the current one) that is one
    (:func:`is_project`). Raises FedprintError that says how to get one when there is none.
    """
    named = os.environ.get("FEDPRINT_ROOT")
    if named:
        if is_project(Path(named)):
            return Path(named).resolve()
        raise FedprintError(
            f"FEDPRINT_ROOT={named} holds no {MARK}, nor pyproject.toml and dvc.yaml: point it at the project, "
            "or unset it"
        )
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if is_project(folder):
            return folder
    raise FedprintError(
        f"{here} is not inside a fedprint project: make one (fedprint init DIR) and change into it, or into a clone, "
        "or set FEDPRINT_ROOT"
    )


def is_project(folder: Path) -> bool:
    """Return whether a folder is a project: a clone, or one of :func:`make_project`."""
    clone = (folder / "pyproject.toml").is_file() and (folder / "dvc.yaml").is_file()
    return clone or (folder / MARK).is_file()


def make_project(folder: Path) -> None:
    """Make a project with the shipped files of settings in a new or empty folder; nothing of it is under git or DVC.

    Raises FedprintError where the folder holds anything.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise FedprintError(f"{folder} is there and not empty: give a new folder")
    try:
        shutil.copytree(SHIPPED, folder / "configs")
    except OSError as error:
        raise FedprintError(f"{folder} cannot be made ({error.strerror}): give another folder") from None
    (folder / ".gitignore").write_text("/work/\n/reports/\n/mlflow.db*\n/mlruns/\n", encoding="utf-8")
    (folder / MARK).write_text("Commands of fedprint below this folder work in it.\n", encoding="utf-8")


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
