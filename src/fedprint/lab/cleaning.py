"""Freeing disk space: what no report and no lock needs goes, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from fedprint.errors import FedprintError
from fedprint.lab.cache import Cache
from fedprint.lab.versions import collect_garbage, freed_bytes, refuse_while_dvc_runs, unused_objects

JOBS = "jobs.json"
"""In a report's folder: label -> stage -> key of the results that it was made from."""


def clean(root: Path, *, dry_run: bool = False) -> int:
    """Remove what no report needs, and return the bytes this frees (would free, when ``dry_run``).

    Goes: results in work/cache that no report was made from, what killed runs left, and objects of DVC's cache that
    the present checkout does not name. Stays: reports, what they were made from, published experiments,
    studies, runs in MLflow. Raises FedprintError while something runs.
    """
    cache = Cache.of(root)
    refuse_while_dvc_runs(root)
    entries = cache.unneeded(reported(root))
    objects = unused_objects(root) if (root / ".dvc").is_dir() else []
    folders = [path for entry in entries for path in (entry.folder, entry.partial) if path.exists()]
    freed = freed_bytes([*folders, *objects])
    if not dry_run:
        for entry in entries:
            cache.drop(entry)
        if objects:
            collect_garbage(root)
    return freed


def reported(root: Path) -> frozenset[Path]:
    """Return the folders in the cache that reports were made from."""
    cache = Cache.of(root)
    return frozenset(
        cache.entry(stage, key).folder
        for path in (root / "reports").rglob(JOBS)
        for stages in _jobs(path).values()
        for stage, key in stages.items()
    )


def _jobs(path: Path) -> dict[str, dict[str, str]]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except json.JSONDecodeError:
        raise FedprintError(f"{path} is damaged: run its experiment again, or remove the report") from None
