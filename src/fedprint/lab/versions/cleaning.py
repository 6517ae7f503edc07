"""Freeing disk space: what no report and no lock needs goes, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from fedprint.errors import FedprintError
from fedprint.lab.cache import Cache
from fedprint.lab.versions.repository import collect_garbage, freed_bytes, refuse_while_dvc_runs, unused_objects

JOBS = "jobs.json"
"""In a report's folder: the jobs that it was made from, by their label; ``keys`` maps stages to keys of results."""


def clean(root: Path, *, dry_run: bool = False) -> int:
    """Remove what no report needs, and return the bytes this frees (would free, when ``dry_run``).

    It removes results in work/cache that no report was made from, those of stages that ran on files elsewhere, what
    killed runs left, and objects of DVC's cache that the present checkout does not name. It keeps reports and what they
    were made from, published experiments, studies, and runs in MLflow. Raises FedprintError while something runs.
    """
    refuse_while_dvc_runs(root)
    caches = {Cache.of(root): reported(root), Cache.direct(root): frozenset[Path]()}
    entries = [(cache, entry) for cache, needed in caches.items() for entry in cache.unneeded(needed)]
    objects = unused_objects(root) if (root / ".dvc").is_dir() else []
    folders = [path for _, entry in entries for path in (entry.folder, entry.partial) if path.exists()]
    freed = freed_bytes([*folders, *objects])
    if not dry_run:
        for cache, entry in entries:
            cache.drop(entry)
        if objects:
            collect_garbage(root)
    return freed


def reported(root: Path) -> frozenset[Path]:
    """Return the folders in the cache that reports were made from."""
    cache = Cache.of(root)
    return frozenset(
        cache.entry(stage, key).folder for path in (root / "reports").rglob(JOBS) for stage, key in _keys(path)
    )


def _keys(path: Path) -> list[tuple[str, str]]:
    try:
        jobs = json.loads(path.read_text(encoding="utf-8"))
        return [pair for job in jobs.values() for pair in job["keys"].items()]
    except (ValueError, AttributeError, KeyError, TypeError):
        raise FedprintError(f"{path} cannot be read: run its experiment again, or remove the report") from None
