"""Where a command writes what it was asked for: checked before the work, so that no minutes are lost."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fedprint.errors import FedprintError


def folder_for(path: Path) -> Path:
    """Return a folder to write, with all folders above it made. Raises FedprintError where it cannot be written."""
    if path.exists() and not path.is_dir():
        raise FedprintError(f"{path} is a file, and results go into a folder; name another")
    return _below_writable(path)


def file_for(path: Path) -> Path:
    """Return a file to write, with all folders above it made. Raises FedprintError where it cannot be written."""
    if path.is_dir():
        raise FedprintError(f"{path} is a folder; name a file")
    return _below_writable(path)


def _below_writable(path: Path) -> Path:
    path = path.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise FedprintError(f"{path} cannot be written ({error.strerror}); choose a place that you may write") from None
