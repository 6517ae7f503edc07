"""The secret head on the privacy-utility plane: trained, attacked by both adversaries, reported, for both tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import TINY, Project

from fedprint.attacks.adversary import shadow_devices as shadow
from fedprint.data.formats.describe import write_table
from fedprint.kinds.laboratory import laboratory
from fedprint.kinds.plane.config import load_plane
from fedprint.kinds.plane.kind import PlaneKind
from fedprint.kinds.requests import request_for
from fedprint.types import FedprintError, Params

SPN = {"name": "spn", "defences": [{"name": "spn", "bits": 8, "alpha2": "$strength"}], "strengths": [0.5]}
BASE: Mapping[str, Any] = {
    **TINY,
    "attacks": [{"name": "ridge", "most_blocks": 1}],
    "analyses": [],
    "threat": {"learn_from": "offline", "shadow_rounds": 2, "shadow_draws": 1},
    "federation": {**TINY["federation"], "rounds": 4, "central_epochs": 0},
}


@pytest.fixture
def digits(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return the settings of a data set with one label per image: eight users of thirty images of three classes."""
    root, rng, count = tmp_path_factory.mktemp("digits"), np.random.default_rng(0), 480
    labels = rng.integers(0, 3, count)
    images = rng.integers(0, 40, (count, 8, 8)).astype(np.uint8)
    images[np.arange(count), 2 * labels] = 220
    columns = {"images": images, "labels": labels.astype(np.uint8), "user": (np.arange(count) % 16).astype(np.int32)}
    write_table(root / "digits", columns, {"licence": "none", "class_names": ["a", "b", "c"]})
    return {"name": "folder", "path": str(root / "digits"), "users": 8, "background_users": 8}


@pytest.mark.parametrize("task", ["multi_label", "single_label"])
def test_a_plane_shows_the_secret_head_before_both_adversaries(
    project: Project, digits: Mapping[str, Any], task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if task == "single_label":
        monkeypatch.setenv("FEDPRINT_DATA", str(Path(digits["path"]).parent))
    project.write("tiny", BASE if task == "multi_label" else {**BASE, "data": digits})
    project.write("sweep", {"report": {"title": "spn"}, "experiment": "tiny", "seeds": [0], "strategies": [SPN]})
    plane = load_plane(request_for(project.root, "sweep"))
    with laboratory(project.root, PlaneKind(), plane, jobs=2) as lab:
        PlaneKind().carry_out(plane, lab, folder := project.root / "reports" / "sweep")
    _, place = json.loads((folder / "plane.json").read_text())["places"]
    assert (place["strategy"], place["strength"], place["error"]) == ("spn", 0.5, None)
    assert set(place["adversaries"]) == {"naive", "adaptive", "best"} and place["utility"]["value"] > 0
    assert all(np.isfinite(found["ap_over_chance"]["value"]) for found in place["adversaries"].values())
    rows = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    assert ("mean_ap" if task == "multi_label" else "accuracy") in {row["metric"] for row in rows}
    effort = [row for row in rows if row.get("analysis") == "effort"]
    assert ("update", "adaptive") in {(row["linkage"], row["adversary"]) for row in effort}
    assert all(row["lo"] <= row["value"] <= row["hi"] for row in effort)


def test_the_adaptive_adversarys_devices_have_heads_and_the_naive_ones_none(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bool] = []
    own_private = shadow._Defend.private

    def private(self: shadow._Defend, device: shadow.ShadowDevice) -> Params:
        found = own_private(self, device)
        heads.append(bool(found))
        return found

    monkeypatch.setattr(shadow._Defend, "private", private)
    project.run("tiny", {**BASE, "defences": [{"name": "spn", "bits": 8, "alpha2": 0.5}]}, until="attack")
    assert any(heads) and not all(heads)


@pytest.mark.parametrize("model", ["lm", "stars"])
def test_a_model_without_classes_is_refused_before_anything_runs(project: Project, model: str) -> None:
    project.write("tiny", {**BASE, "model": {"name": model}})
    project.write("sweep", {"report": {"title": "spn"}, "experiment": "tiny", "seeds": [0], "strategies": [SPN]})
    words = f"spn at 0.5: .*spn needs classes with a code each, which '{model}' has not"
    with pytest.raises(FedprintError, match=words) as caught:
        load_plane(request_for(project.root, "sweep"))
    assert "\n" not in str(caught.value) and not (project.root / "work").exists()


@pytest.mark.parametrize("name", ["albums-plane", "mnist-writers-plane"])
def test_shipped_planes_have_it_at_strengths_of_the_papers(project: Project, name: str) -> None:
    (spn,) = [
        strategy
        for strategy in load_plane(request_for(project.root, name)).settings.strategies
        if strategy.name == "spn"
    ]
    assert {0.01, 0.1} <= set(spn.strengths)
