"""Files that settings name (trained weights, a query, an encoder): a key needs what is in them, not their paths."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from fedprint.component import Component
from fedprint.data.formats.files import known_sha256
from fedprint.data.formats.locate import data_root, located
from fedprint.kinds.federation.config import Experiment

NO_FILES = "none"
"""The digest of an experiment whose settings name no file."""


def named_files(config: Experiment) -> tuple[str, ...]:
    """Return the files and folders that components name, sorted."""
    parts = (config.model, *config.defences, *config.analyses)
    return tuple(sorted({path for part in parts for path in part.reads}))


def files_sha256(config: Experiment) -> str:
    """Return one hash of the names and contents of :func:`named_files`, ``none`` without any.

    Paths are taken as given, else inside the data folder, as their readers do. A missing file has a digest too: its
    reader says what to do.
    """
    digests = {path: _contents(located(path)) for path in named_files(config)}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest() if digests else NO_FILES


def data_paths(source: Component) -> tuple[str, ...]:
    """Return where the data of a source are: the data folder, what it links to, and folders that settings name."""
    root = data_root(None)
    linked = [path for path in root.iterdir() if path.is_symlink()] if root is not None and root.is_dir() else []
    paths = [*([root] if root is not None else []), *linked, *(located(path) for path in source.reads)]
    return tuple(dict.fromkeys(str(path.resolve()) for path in paths))


def _contents(path: Path) -> dict[str, str]:
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return {str(file.relative_to(path)): known_sha256(file) for file in files if file.is_file()}
