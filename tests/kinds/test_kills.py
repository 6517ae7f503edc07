"""A plane and a study that are killed at random times and repeated end as if nobody had touched them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from killed import run_killed
from tiny_project import TINY, Project, project_in
from tiny_study import STUDY, write_study

from fedprint.kinds import driver
from fedprint.kinds.requests import request_for

SMALL = {**TINY, "attacks": [{"name": "knn", "k": 3}], "analyses": []}
PLANE = {
    "report": {"title": "A plane"}, "experiment": "tiny", "with": {"federation": {"rounds": 4}}, "seeds": [0, 1],
    "strategies": [
        {"name": "noise", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.01, 0.1]},
        {"name": "quantise", "defences": [{"name": "quantise", "bits": "$strength"}], "strengths": [2]},
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_killed_plane_ends_byte_identical(
    project: Project, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    project.write("tiny", SMALL)
    project.write("plane", PLANE)
    assert run_killed(request_for(project.root, "plane", fast=True), jobs=2, kills=5, seed=seed) >= 3
    with project_in(tmp_path_factory.mktemp("whole")) as other:
        other.write("tiny", SMALL)
        other.write("plane", PLANE)
        whole = driver.run(request_for(other.root, "plane", fast=True), jobs=2)
    killed = project.root / "reports" / "plane-fast"
    for name in ("measurements.jsonl", "jobs.json", "config.yaml"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
    assert not list((project.root / "work" / "cache").glob("*/.*.partial")), "nothing half-done stays"


@pytest.mark.slow
def test_a_killed_study_ends_with_the_same_trials_and_operating_points(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = {**STUDY, "trials": 4, "strategies": STUDY["strategies"][:1], "seeds": [0], "fast": {}}
    project.write("tiny", SMALL)
    write_study(project, "demo", settings)
    path = "configs/studies/demo.yaml"
    assert run_killed(request_for(project.root, path, fast=True), jobs=1, kills=4, seed=0) >= 2
    with project_in(tmp_path_factory.mktemp("whole")) as other:
        other.write("tiny", SMALL)
        write_study(other, "demo", settings)
        whole = driver.run(request_for(other.root, path, fast=True), jobs=1)
    killed = project.root / "reports" / "study-demo-fast"
    assert found(killed) == found(whole)
    assert (killed / "measurements.jsonl").read_bytes() == (whole / "measurements.jsonl").read_bytes()


def found(folder: Path) -> list[Any]:
    """Return operating points and trials; a trial that was begun again has another number."""
    points = json.loads((folder / "operating_points.json").read_text())
    trials = json.loads((folder / "trials.json").read_text())["noise"]["trials"]
    told = ("values", "state", "utility", "attack_ap", "ceiling", "excess", "details")
    return [
        [_but_the_trial(point) for point in points],
        [{name: trial[name] for name in told} for trial in trials],
    ]


def _but_the_trial(point: dict[str, Any]) -> dict[str, Any]:
    confirmed = point["confirmation"] and _but_the_trial(point["confirmation"])
    return {name: value for name, value in point.items() if name != "trial"} | {"confirmation": confirmed}
