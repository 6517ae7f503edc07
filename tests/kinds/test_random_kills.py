"""Inversions and client sweeps that are killed at random times end as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny_inversion import SMALL, write_blobs
from tiny_project import Project, make_project

KILLS = 12
INVERSION = {
    **SMALL,
    "attacks": [{**SMALL["attacks"][0], "attack": {"name": "gradient-matching", "evaluations": 20}, "batches": [1, 2]}],
    "mechanisms": SMALL["mechanisms"][:3],
}
CLIENTS = {
    "report": {"title": "Tiny sweep"},
    "data": {"name": "blobs", "train": 60, "test": 40},
    "partitions": [{"name": "iid"}],
    "clients": [2, 6],
    "network": {"name": "mlp", "hidden": 8},
    "training": {"rounds": 20, "batch_size": 5, "lr": 0.01},
    "methods": [{"name": "standalone", "alone": True}, {"name": "fedavg"}],
}


def run_in(root: Path, kill_after: float | None = None) -> float:
    """Run the experiment, killed after some seconds if it has not ended; return how long it took."""
    environment = {**os.environ, "FEDPRINT_ROOT": str(root), "FEDPRINT_DATA": str(root / "data")}
    command = [sys.executable, str(Path(__file__).with_name("killable.py")), "killed"]
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.DEVNULL)
    try:
        code = process.wait(kill_after)
        assert code == 0, f"exit code {code}"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return time.monotonic() - started


def project_with(root: Path, values: Mapping[str, Any]) -> Project:
    root.mkdir()
    project = make_project(root)
    write_blobs(root / "data")
    project.write("killed", values)
    return project


def results(root: Path) -> dict[str, bytes]:
    """Return every file of the report and of the cache, without what locks it."""
    found = [path for folder in ("reports", "work/cache") for path in (root / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in found if ".locks" not in path.parts}


@pytest.mark.slow
@pytest.mark.parametrize("values", [INVERSION, CLIENTS], ids=["inversion", "clients"])
def test_random_kills_change_no_byte(values: Mapping[str, Any], tmp_path: Path) -> None:
    whole, killed = (project_with(tmp_path / name, values).root for name in ("whole", "killed"))
    seconds, rng = run_in(whole), random.Random(0)
    for _ in range(KILLS):
        run_in(killed, rng.uniform(0.15, 0.6) * seconds)
    run_in(killed)
    assert results(killed) == results(whole)
