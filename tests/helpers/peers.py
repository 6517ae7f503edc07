"""Flower's and pfl's own environments: made as the benchmark makes them, or a reason to skip a test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.beside_peers import PEERS, environment

ROOT = Path(__file__).parents[2]


def python_of(peer: str) -> Path:
    """Return the Python of a peer's environment, which is made where it is missing, or skip the test."""
    try:
        return environment(peer)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        pytest.skip(f"{PEERS[peer]} cannot be installed: {said[-1] if said else type(error).__name__}")


def run_in(python: Path, *arguments: str) -> str:
    """Run a script or module of this checkout in that environment and return what it prints."""
    known = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_worker_niceness": "0"}  # else Ray's workers wait for all others
    done = subprocess.run(
        [str(python), *arguments], cwd=ROOT, env=os.environ | known | quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_file(python: Path, name: str) -> None:
    """Run a test file, of which every test has to pass and none may be skipped."""
    said = run_in(python, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", f"tests/{name}")
    assert " passed" in said and "skipped" not in said, said
