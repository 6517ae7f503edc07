"""A small quickstart and a small plane through their real stages, to a remote, and back in a fresh clone."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc_project import commit, dvc, git
from mlflow import MlflowClient
from mlflow.entities import Run
from tiny_project import CHECKOUT, TINY, Project

from fedprint.kinds import driver
from fedprint.kinds.federation.reattack import reattack
from fedprint.kinds.requests import request_for
from fedprint.lab.tracking.database import tracking_uri
from fedprint.lab.versions.repository import pull

pytestmark = pytest.mark.slow

PLANE: Mapping[str, Any] = {
    "report": {"title": "p"},
    "experiment": "quickstart",
    "seeds": [0],
    "strategies": [{"name": "noise", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.1]}],
}


def test_a_clone_gets_the_update_dump_of_every_commit(
    project: Project, versioned: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, shelf, fresh = versioned, tmp_path_factory.mktemp("shelf"), tmp_path_factory.mktemp("fresh") / "clone"
    assert dvc(root, "remote", "add", "--default", "shelf", str(shelf)).returncode == 0
    # The stages of the quickstart name the code that they depend on.
    shutil.copytree(CHECKOUT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    project.write("plane", PLANE)
    kept = {}
    for rounds in (4, 6):
        project.write("quickstart", {**TINY, "federation": {**TINY["federation"], "rounds": rounds}})
        driver.run(request_for(root, "quickstart"), jobs=1)
        driver.run(request_for(root, "plane"), jobs=1, keep=True)
        kept[rounds] = recorded_updates(root)
        assert git(root, "diff", "--cached", "--name-only") == "", "running stages nothing in git"
        commit(root, f"{rounds} rounds")
        done = dvc(root, "push")
        assert done.returncode == 0, done.stderr
    assert len(kept[4]) == len(kept[6]) > 2 and kept[4] != kept[6]
    assert {Path(name).parts[1] for name in kept[6]} == {"quickstart", "plane"}
    git(root.parent, "clone", "-q", str(root), str(fresh))
    done = dvc(fresh, "pull")
    assert done.returncode == 0, done.stderr
    assert recorded_updates(fresh) == kept[6]
    assert "up to date" in dvc(fresh, "status").stdout
    git(fresh, "checkout", "-q", "HEAD~1")
    assert "fetched" in pull(fresh)
    assert recorded_updates(fresh) == kept[4]
    assert git(fresh, "status", "--short") == ""


def recorded_updates(root: Path) -> dict[str, bytes]:
    """Return every file of the updates as the server saw them, by its path."""
    files = [path for path in (root / "experiments").rglob("*") if "observed" in path.parts and path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_dvc_repro_in_a_fresh_clone_makes_what_a_run_recorded(
    project: Project, versioned: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, fresh = versioned, tmp_path_factory.mktemp("fresh") / "clone"
    shutil.copytree(CHECKOUT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    project.write("quickstart", {**TINY, "split": {**TINY["split"], "priors": ["random"]}})
    driver.run(request_for(root, "quickstart"), jobs=1)
    commit(root, "as recorded")
    git(root.parent, "clone", "-q", str(root), str(fresh))
    monkeypatch.setenv("FEDPRINT_ROOT", str(fresh))
    done = dvc(fresh, "repro")
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(fresh, "status", "--short") == "", "to the byte what was recorded elsewhere"
    assert "up to date" in dvc(fresh, "status").stdout
    (run,) = tracked(fresh, "random")
    assert run.info.status == "FINISHED" and run.data.tags["mlflow.source.name"] == "dvc repro"
    assert run.data.metrics["attack/ap_update"] > 0 and run.outputs.model_outputs and run.inputs.dataset_inputs
    assert reattack("quickstart/random-0", ["attacks=[{name: knn, k: 3}]"], fresh / "work" / "again")[1].is_dir()
    changed = dvc(fresh, "exp", "run", "-S", "experiments/quickstart/config.yaml:federation.rounds=5")
    assert changed.returncode == 0, changed.stdout + changed.stderr
    assert "up to date" in dvc(fresh, "status").stdout


def test_repro_refuses_data_that_the_lock_does_not_name(project: Project, versioned: Path) -> None:
    project.write("quickstart", {**TINY, "split": {**TINY["split"], "priors": ["random"]}})
    shutil.copytree(CHECKOUT / "src", versioned / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    driver.run(request_for(versioned, "quickstart"), jobs=1)
    manifest = versioned / "datasets" / "albums.yaml"
    digest = yaml.safe_load(manifest.read_text())["sha256"]
    manifest.write_text(manifest.read_text().replace(digest, digest[::-1]))
    done = dvc(versioned, "repro", "--force", "--single-item", "prepare@random-0")
    assert done.returncode != 0 and "datasets/albums.yaml names other data than these" in done.stdout + done.stderr


def tracked(root: Path, prior: str) -> list[Run]:
    """Return MLflow's runs of a prior."""
    client = MlflowClient(tracking_uri=tracking_uri(root))
    experiments = [each.experiment_id for each in client.search_experiments()]
    return list(client.search_runs(experiments, f"tags.`fedprint.prior` = '{prior}'"))
