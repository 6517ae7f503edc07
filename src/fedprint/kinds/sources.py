"""Files of settings by name or path, and the names of their variants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from fedprint.errors import FedprintError
from fedprint.kinds.base import Source
from fedprint.kinds.config_files import read_yaml
from fedprint.lab.project import checked_name

FOLDERS = ("experiments", "studies")
_SINGULAR = {"experiments": "experiment", "studies": "study"}
_LONGEST = 60


def source(
    root: Path,
    what: str,
    *,
    fast: bool = False,
    assignments: Sequence[str] = (),
    strategies: Sequence[str] = (),
    name: str | None = None,
    folders: Sequence[str] = FOLDERS,
) -> Source:
    """Return what to run: ``what`` is a name below configs/ or a path to a file, also outside the project.

    Without a ``name`` a variant gets one made from what differs (``quickstart-fast``, ``quickstart-rounds=5``), so that
    it never replaces the report of another. Raises FedprintError for an unknown name.
    """
    path = file_of(root, what, folders)
    plain = f"study-{path.stem}" if path.parent.name == "studies" else path.stem
    return Source(
        root=root,
        path=path,
        values=read_yaml(path),
        name=checked_name(name or variant(plain, fast=fast, assignments=assignments, strategies=strategies)),
        fast=fast,
        assignments=tuple(assignments),
        strategies=tuple(strategies),
    )


def file_of(root: Path, what: str, folders: Sequence[str] = FOLDERS) -> Path:
    """Return the file that a name or a path means."""
    if what.endswith((".yaml", ".yml")):
        if Path(what).is_file():
            return Path(what).resolve()
        raise FedprintError(f"{what}: no such file; give a path to a file of settings, or a name")
    places = [root / "configs" / folder / f"{what}.yaml" for folder in folders]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        known = sorted({path.stem for place in places for path in place.parent.glob("*.yaml")})
        kind = _SINGULAR[folders[0]]
        raise FedprintError(f"unknown {kind} '{what}'; choose one of {', '.join(known)}, or give a path")
    return found


def variant(plain: str, *, fast: bool, assignments: Sequence[str], strategies: Sequence[str] = ()) -> str:
    """Return a name for what differs from a file: nothing leaves its name as it is."""
    parts = [*strategies, *(["fast"] if fast else []), *(_short(text) for text in assignments)]
    name = "-".join([plain, *parts])
    if len(name) <= _LONGEST and all(part for part in parts):
        return name
    told = hashlib.sha256("\n".join([*strategies, str(fast), *assignments]).encode()).hexdigest()[:8]
    return f"{plain}-{'fast-' if fast else ''}{told}"


def _short(assignment: str) -> str:
    """Return ``rounds=5`` of ``federation.rounds=5``; empty where the value is no short word."""
    key, _, value = assignment.partition("=")
    short = value.strip("[]").replace(", ", "_").replace(",", "_")
    return f"{key.rpartition('.')[2]}={short}" if re.fullmatch(r"[A-Za-z0-9._-]{1,24}", short) else ""
