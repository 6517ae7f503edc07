"""Images out of what a federation recorded: ``fedprint reconstruct``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_inversion import where
from tiny_project import TINY, Project

from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.recorded import fitting, groups_of, in_orders, knowledge_of, senders_of
from fedprint.attacks.inversion.simulate import LocalSteps
from fedprint.data.formats.describe import write_table
from fedprint.errors import FedprintError
from fedprint.evaluation.rows import Row, read_measurements
from fedprint.kinds import PRELOADED
from fedprint.kinds.federation.building.view import open_view
from fedprint.kinds.reconstruction.command import run_recorded, settings_of
from fedprint.kinds.reconstruction.stages import IMAGES, ROWS
from fedprint.lab.graph import Task
from fedprint.lab.workers.ray_pool import RayPool
from fedprint.rng import torch_rng

GRADIENTS: Mapping[str, Any] = {
    **TINY,
    "split": {"priors": ["random"], "max_private_examples": 2},
    "model": {"name": "dlnet", "channels": 6, "bound": 0.5},
    "federation": {"rounds": 3, "fraction": 1.0, "batch_size": 100, "lr": 0.1, "backend": "sequential",
                   "central_epochs": 0},
    "store": {"precision": "float32"},
    "analyses": [],
}  # fmt: skip
STEPS = {**GRADIENTS, "federation": {**GRADIENTS["federation"], "batch_size": 1}}
IN_TURN = {**GRADIENTS, "federation": {**GRADIENTS["federation"], "aggregation": "round-robin"}}
NOISE = {**GRADIENTS, "defences": [{"name": "noise", "sigma": 0.01}]}
TEXT = {"name": "presidents"}


def write_corners(folder: Path) -> None:
    """Smooth grey images of three classes by four users."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    rows, columns = np.mgrid[0:8, 0:8] / 7
    centres = np.array([[0.2, 0.2], [0.8, 0.2], [0.5, 0.8]])[labels] + 0.1 * rng.normal(size=(120, 2))
    distance = (rows - centres[:, :1, None]) ** 2 + (columns - centres[:, 1:, None]) ** 2
    images = np.clip(40 + 200 * np.exp(-6 * distance) + 8 * rng.normal(size=distance.shape), 0, 255)
    users = np.repeat(np.arange(6), 20)
    table = {"images": images.astype(np.uint8), "labels": labels.astype(np.uint8), "user": users}
    write_table(folder, table, {"licence": "CC0"})


def recorded(project: Project, values: Mapping[str, Any]) -> Task:
    """Run ``values`` up to the questions."""
    folder = project.root / "corners"
    if not folder.is_dir():
        write_corners(folder)
    data = {"name": "folder", "path": str(folder), "users": 4, "background_users": 2}
    task = project.run("corners", {**values, "data": data}, until="ask")
    (task.scratch.parent / "config.yaml").write_text(task.config.text(), encoding="utf-8")
    return task


def rows_of(task: Task, *assignments: str) -> list[Row]:
    settings = ["updates=2", "public=8", "strangers=8", "attack.evaluations=300", *assignments]
    _, folder = run_recorded(task.scratch.parent, settings, None)
    assert (folder / IMAGES).stat().st_size > 1000
    return read_measurements(folder / ROWS)


def value(rows: list[Row], metric: str, **keys: Any) -> float:
    (found,) = where(rows, metric=metric, **keys)
    assert found["lo"] <= found["value"] <= found["hi"] and found["chance"] is not None
    return float(found["value"])


@pytest.mark.parametrize("values", [GRADIENTS, STEPS, IN_TURN], ids=["gradients", "local-steps", "in-turn"])
def test_images_labels_and_senders_come_back(project: Project, values: Mapping[str, Any]) -> None:
    rows = rows_of(recorded(project, values))
    assert value(rows, "reconstruction_rmse", pixels="clipped") < 0.15
    assert value(rows, "label_accuracy") == 1
    assert value(rows, "example_membership_auc", attack="alignment") > 0.6
    assert {row["adversary"] for row in rows} == {"naive"}, "without a defence both adversaries are one"


@pytest.mark.slow
def test_ray_reconstructs_what_this_machine_does(project: Project, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    task = recorded(project, GRADIENTS)
    settings = ["updates=2", "public=8", "strangers=8", "attack.evaluations=100"]
    with RayPool(PRELOADED) as pool:
        _, folder = run_recorded(task.scratch.parent, settings, tmp_path / "ray", pool)
    assert read_measurements(folder / ROWS) == rows_of(task, *settings)


def test_local_steps_are_unrolled_in_several_orders(project: Project) -> None:
    task = recorded(project, STEPS)
    view, _ = open_view(task, "naive")
    (group,) = groups_of(view, senders_of(view, 1)[:2], (1, 8, 8), 3)
    assert group.victims.steps is not None
    assert group.victims.steps.batches == ((0,), (1,)) and group.victims.steps.lr == 0.1
    assert group.victims.images == 2
    tried = {one.steps.batches for one in in_orders(group.victims, 4, torch_rng(0)) if one.steps}
    assert tried == {((0,), (1,)), ((1,), (0,))}, "two images have two orders"
    whole = replace(group.victims, steps=LocalSteps(batches=((0, 1), (0, 1)), lr=0.1))
    assert in_orders(whole, 4, torch_rng(0)) == [whole], "where a step takes all images there is one order"


def test_several_rounds_of_a_device_are_one_problem(project: Project) -> None:
    task = recorded(project, GRADIENTS)
    view, _ = open_view(task, "naive")
    (group,) = groups_of(view, senders_of(view, 3)[:2], (1, 8, 8), 3)
    assert group.victims.rounds == 3 and group.victims.params["head.bias"].shape == (2, 3, 3)
    assert value(rows_of(task, "rounds=3"), "reconstruction_rmse", pixels="clipped") < 0.15
    with pytest.raises(FedprintError, match="rounds=4: no anonymous device"):
        rows_of(task, "rounds=4")


def test_who_knows_of_noise_is_told_its_size_in_gradients(project: Project) -> None:
    task = recorded(project, NOISE)
    knows, knows_not = (open_view(task, name)[0] for name in ("adaptive", "naive"))
    assert knowledge_of(knows, 0.1).sigma == pytest.approx(0.1), "noise .01 on an update is .1 on its gradient at lr .1"
    assert knowledge_of(knows_not, 0.1).sigma == 0
    rows = rows_of(task)
    assert {row["adversary"] for row in rows} == {"naive", "adaptive"}
    errors = [value(rows, "reconstruction_rmse", pixels="clipped", adversary=a) for a in ("naive", "adaptive")]
    assert errors[1] < errors[0]


def test_who_knows_that_updates_are_clipped_compares_directions(project: Project) -> None:
    task = recorded(project, {**GRADIENTS, "defences": [{"name": "dp-local", "clip": 0.01, "z": 0.0}]})
    knows, knows_not = (open_view(task, name)[0] for name in ("adaptive", "naive"))
    attack = GradientMatching()
    assert [fitting(attack, view, 2).distance for view in (knows, knows_not)] == ["cosine", "l2"]
    assert fitting(attack, knows, 2).labels == "counts" and fitting(attack, knows, 1).labels == "row-sum"


def test_sums_of_updates_and_updates_of_adam_are_refused(project: Project) -> None:
    secure = {**GRADIENTS, "defences": [{"name": "secure-aggregation", "size": 2}]}
    with pytest.raises(FedprintError, match="saw sums"):
        rows_of(recorded(project, secure))
    adam = {**STEPS, "federation": {**STEPS["federation"], "optimiser": "adam"}}
    with pytest.raises(FedprintError, match="cannot be unrolled"):
        rows_of(recorded(project, adam))


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(FedprintError, match="updates"):
        settings_of(["updates=1"])
    with pytest.raises(FedprintError, match="nonsense"):
        settings_of(["attack.nonsense=1"])
