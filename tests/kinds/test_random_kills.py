"""Inversions and client sweeps that are killed at random times end as if nothing had happened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from killed import run_killed
from tiny_inversion import SMALL, write_blobs
from tiny_project import Project, make_project

from fedprint.kinds import driver
from fedprint.kinds.requests import request_for

INVERSION = {
    **SMALL,
    "attacks": [{**SMALL["attacks"][0], "attack": {"name": "gradient-matching", "evaluations": 20}, "batches": [1, 2]}],
    "mechanisms": SMALL["mechanisms"][:3],
}
CLIENTS = {
    "report": {"title": "Tiny sweep"},
    "data": {"name": "blobs", "train": 60, "test": 40},
    "partitions": [{"name": "iid"}, {"name": "dirichlet"}],
    "clients": [2, 6],
    "network": {"name": "mlp", "hidden": 8},
    "training": {"rounds": 20, "batch_size": 5, "lr": 0.01},
    "methods": [{"name": "standalone", "alone": True}, {"name": "fedavg"}],
    "fast": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("values", [INVERSION, CLIENTS], ids=["inversion", "clients"])
def test_random_kills_change_no_byte(
    values: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_blobs(tmp_path / "data")
    monkeypatch.setenv("FEDPRINT_DATA", str(tmp_path / "data"))
    whole, killed = (project_with(tmp_path / name, values) for name in ("whole", "killed"))
    monkeypatch.setenv("FEDPRINT_ROOT", str(killed.root))
    assert run_killed(request_for(killed.root, "killed", fast=True), jobs=2, kills=6, seed=0) >= 3
    monkeypatch.setenv("FEDPRINT_ROOT", str(whole.root))
    driver.run(request_for(whole.root, "killed", fast=True), jobs=2)
    assert results(killed.root) == results(whole.root)
    assert not list((killed.root / "work" / "cache").glob("*/.*.partial")), "nothing half-done stays"


def project_with(root: Path, values: Mapping[str, Any]) -> Project:
    root.mkdir()
    project = make_project(root)
    project.write("killed", values)
    return project


def results(root: Path) -> dict[str, bytes]:
    """Return every file of the report and of the cache, without what locks it."""
    found = [path for folder in ("reports", "work/cache") for path in (root / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in found if ".locks" not in path.parts}
