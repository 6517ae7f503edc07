"""A federation whose clients train on Ray has the store of one machine, byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_project import TINY, Project

from fedprint.kinds import PRELOADED
from fedprint.kinds.federation.config import check_experiment
from fedprint.kinds.federation.jobs import job_of
from fedprint.lab.runner import Lab
from fedprint.lab.workers.pool import LocalPool, Pool
from fedprint.lab.workers.ray_pool import RayPool

WRITTEN = ("observed", "truth", "public", "utility", "model")
DEFENCES = [{"name": "dp-fedavg", "clip": 1.0, "z": 0.1}, {"name": "spn", "bits": 4}]
"""Noise of the server, which depends on what names the store, and parameters that never leave a device."""


def written(root: Path, pool: Pool, backend: str) -> dict[str, bytes]:
    """Train in the lab, in a confined process of ``pool``; return what holds no times and no backend's name."""
    federation = {**TINY["federation"], "rounds": 4, "backend": backend, "central_epochs": 0}
    values = {**TINY, "name": "tiny", "federation": federation, "defences": DEFENCES}
    with Lab(root=root, pool=pool, keep=True) as lab:
        job = job_of(check_experiment(values, "test"), "random", 0, label="random-0")
        done = lab.one(job, title=backend, want=["federate"])
    folders = {name: done.outputs[name] for name in WRITTEN}
    return {
        f"{name}/{path.relative_to(folder)}": path.read_bytes()
        for name, folder in folders.items()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "model.json"
    }


@pytest.mark.slow
def test_the_store_is_that_of_the_local_executor_byte_by_byte(project: Project) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    with LocalPool(PRELOADED) as pool:
        expected = written(project.root, pool, "vectorised:3")
        assert written(project.root, pool, "ray:2:vectorised:3") == expected
        assert {name.split("/")[0] for name in expected} == set(WRITTEN)
    with RayPool(PRELOADED) as pool:  # the stage finds the cluster that runs it
        assert written(project.root, pool, "ray:1:vectorised:3") == expected
