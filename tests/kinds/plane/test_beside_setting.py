"""``beside`` in a plane's file: which published runs may stand there, and what a plane's identity holds of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_project import TINY, Project

from fedprint.kinds.plane.config import Plane, load_plane
from fedprint.kinds.requests import request_for
from fedprint.lab.versions.dvc_yaml import Published, published_yaml
from fedprint.types import FedprintError

SWEEP: Mapping[str, Any] = {
    "report": {"title": "A sweep"},
    "experiment": "tiny",
    "with": {"data": {"skip": 50}},
    "strategies": [{"name": "noise", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.1]}],
}


def plane(project: Project, *, beside: str | None = "dev", skip: int = 50) -> Plane:
    project.write("tiny", TINY)
    (project.root / "configs" / "users.yaml").write_text("albums: 50\n")
    values = {**SWEEP, "with": {"data": {"skip": skip}}} | ({"beside": beside} if beside else {})
    project.write("sweep", values)
    return load_plane(request_for(project.root, "sweep"))


def publish(project: Project, data: Mapping[str, Any], name: str = "dev", value: float = 0.5) -> Path:
    folder = project.root / "experiments" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"sweep": {}, "experiment": {"data": dict(data)}}))
    (folder / "measurements.jsonl").write_text(json.dumps({"metric": "ap", "value": value}) + "\n")
    return folder


def test_development_users_stand_beside_confirmation_users(project: Project) -> None:
    publish(project, TINY["data"])
    beside = plane(project).beside
    assert beside is not None and beside.users == "development" and beside.hint is None and len(beside.rows) == 1


def test_a_run_that_is_not_published_leaves_a_hint(project: Project) -> None:
    beside = plane(project).beside
    assert beside is not None and beside.rows == () and "fedprint run dev" in str(beside.hint)


def test_users_in_a_folder_of_ones_own_stand_beside_any_published_run(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "nobody-knows-them"
    project.write("tiny", TINY)
    (project.root / "configs" / "users.yaml").write_text("albums: 50\n")
    publish(project, {**TINY["data"], "skip": 50})
    project.write("sweep", {**SWEEP, "beside": "dev"})
    own = f"data={{name: folder, path: {folder}}}"
    beside = load_plane(request_for(project.root, "sweep", assignments=(own,))).beside
    assert beside is not None and beside.users == "confirmation" and beside.hint is None and len(beside.rows) == 1
    publish(project, {**TINY["data"], "users": 60})
    both = load_plane(request_for(project.root, "sweep", assignments=(own,))).beside
    assert both is not None and both.rows == () and "they are about both and None ones" in str(both.hint)


def test_two_runs_on_the_same_part_are_not_compared(project: Project) -> None:
    publish(project, TINY["data"])
    beside = plane(project, skip=0).beside
    assert beside is not None and beside.rows == ()
    assert "they are about development and development ones" in str(beside.hint)


def test_another_data_set_or_kind_is_refused(project: Project) -> None:
    folder = publish(project, {"name": "mnist_writers"})
    with pytest.raises(FedprintError, match="beside: dev is about mnist_writers; name a plane of albums"):
        plane(project)
    (folder / "config.yaml").write_text("data: {name: albums}\n")
    with pytest.raises(FedprintError, match="beside: dev is no plane"):
        plane(project)


def test_other_numbers_beside_are_another_page_and_none_change_nothing(project: Project) -> None:
    bare = plane(project, beside=None)
    assert "beside" not in yaml.safe_load(bare.text())["sweep"]
    publish(project, TINY["data"], value=0.5)
    first = plane(project)
    assert yaml.safe_load(first.text())["sweep"]["beside"] == "dev"
    publish(project, TINY["data"], value=0.6)
    assert len({bare.digest(), first.digest(), plane(project).digest()}) == 3
    assert [config.digest() for config in (bare.config, first.config)] == [bare.config.digest()] * 2


def test_the_lock_names_the_measurements_beside() -> None:
    stage = yaml.safe_load(published_yaml(Published(experiment="x", command="fedprint run x", reads=("dev",))))
    assert "experiments/dev/measurements.jsonl" in stage["stages"]["run"]["deps"]
