"""client-dp's experiment on made-up digits, from the shards to the rows: what was reached says within which budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import Project

from fedprint.data.examples import PooledExamples
from fedprint.data.formats.describe import write_table
from fedprint.data.prepared import load_users
from fedprint.evaluation.diversity import doublings
from fedprint.evaluation.rows import GUARANTEE, read_measurements
from fedprint.kinds.federation.jobs import job_of
from fedprint.kinds.federation.tracked import log_federation
from fedprint.lab.runner import Done
from fedprint.reports.figures import federation as figures
from fedprint.reports.numbers.evaluations import read_evaluations
from fedprint.store.reader import UpdateStore

EXPERIMENT = {
    "report": {"title": "Strokes"},
    "data": {"name": "mnist_shards", "clients": 40, "examples": 12},
    "split": {"priors": ["random"]},
    "model": {"name": "oriented-gradients", "orientations": 4, "cells": 4},
    "federation": {"rounds": 20, "fraction": 0.5, "sampling": "poisson", "batch_size": 12, "lr": 100,
                   "backend": "vectorised", "diagnostics": True, "evaluate_every": 4, "central_epochs": 0},
    "defences": [{"name": "dp-fedavg", "clip": 8, "z": 0.8,
                  "budget": {"epsilon": 12.5, "delta": 0.001, "accountant": "moments"}}],
    "threat": {"adversaries": ["naive"]},
    "attacks": [{"name": "chance"}, {"name": "knn", "k": 3}],
    "selection": {"shadow_rounds": 2},
    "evaluation": {"resamples": 200, "permutations": 99, "round_bins": 2},
}  # fmt: skip


@pytest.fixture
def strokes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digit d is a bright bar in row 2 d + 3 with a little noise: easy, once a model reads edges."""
    root, rng, count = tmp_path_factory.mktemp("strokes"), np.random.default_rng(0), 540
    labels = np.arange(count) % 10
    images = rng.integers(0, 40, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label + 3 : 2 * label + 5, 4:24] = 220
    columns = {
        "images": images,
        "labels": labels.astype(np.uint8),
        "user": (np.arange(count) % 9).astype(np.int32),
        "order": np.arange(count).astype(np.int16),
        "split": (np.arange(count) >= 480).astype(np.uint8),
    }
    write_table(root / "mnist_writers", columns, {"licence": "none", "class_names": list("0123456789")})
    monkeypatch.setenv("FEDPRINT_DATA", str(root))


class FakeRun:
    """Takes what a stage tells MLflow."""

    def __init__(self) -> None:
        self.metrics: dict[str, tuple[float, int]] = {}
        self.tags: dict[str, object] = {}

    def log_metrics(self, batch: Sequence[tuple[str, float, int]], **of: object) -> None:
        self.metrics |= {name: (value, step) for name, value, step in batch}

    def set_tags(self, tags: Mapping[str, object]) -> None:
        self.tags |= tags

    def log_data(self, data: object) -> None: ...

    def log_model(self, folder: Path, **of: object) -> str:
        return "model"

    def log_artifacts(self, place: Path, below: str | None = None) -> None: ...


def dots(evaluation: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[float, float]], str]:
    """Return where the report's curve of the utility has a dot, and its caption."""
    drawn: list[tuple[Any, str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(figures, "finish", lambda figure, name, title, look, caption: drawn.append((figure, caption)))
        figures.utility_curves(read_evaluations([evaluation]), ())
    (figure, caption) = drawn[0]
    lines = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "o"]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in lines], caption


@pytest.mark.usefixtures("strokes")
def test_the_digits_are_learned_within_the_budget_and_the_rows_say_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = project.run("strokes", EXPERIMENT)
    rows = read_measurements(job.at("evaluation") / "rows.jsonl")
    accuracy, epsilon = (
        [row for row in found if row["metric"] == metric and row["training"] == "federated"]
        for found, metric in ((rows, "accuracy"), (read_measurements(job.at("evaluation") / "analysis_rows.jsonl"),
                                                  "epsilon"))
    )  # fmt: skip
    first = next(row for row in epsilon if row["accountant"] == "moments")
    of_user = epsilon.pop()
    assert {row["protects"] for row in epsilon} == {"device"} and {row["n_users"] for row in epsilon} == {40}
    assert (of_user["protects"], of_user["accountant"], of_user["n_users"]) == ("user", "pld", 20)
    assert len(accuracy) == 1 and accuracy[0]["defence"] == first["defence"] == "dp-fedavg"
    assert {key: accuracy[0][key] for key in GUARANTEE} == {
        "epsilon": first["value"], "epsilon_user": of_user["value"], "delta": 0.001,
        "accountant": "moments", "sampling": "poisson",
        "adjacency": "add-remove", "rounds": first["rounds"], "communication": 20 * first["rounds"],
        "not_covered": first["not_covered"],
    }  # fmt: skip
    for silent in ("the logged training loss", "V_c and U_s", "second device", "the choice of the settings"):
        assert silent in first["not_covered"]
    assert 0 < first["value"] <= 12.5 and first["rounds"] == 8 == UpdateStore.open(job.at("observed")).rounds
    assert accuracy[0]["value"] > 0.5, "a tenth is chance"
    details = json.loads((job.at("evaluation") / "details.json").read_text())
    assert details["budget"]["epsilon"] == first["value"]
    assert all(entry["between_clients_variance"] > 0 for entry in details["history"])
    moved = {row["metric"]: row for row in read_measurements(job.at("evaluation") / "analysis_rows.jsonl")
             if row["analysis"] == "diversity"}  # fmt: skip
    assert set(moved) == {"between_clients_variance_change", "update_scale_change"}
    for metric, row in moved.items():
        recorded = [entry[metric.removesuffix("_change")] for entry in details["history"]]
        found = doublings(recorded)
        assert found is not None and (row["value"], row["n_questions"]) == (found.value, len(recorded))
        assert (row["view"], row["defence"], row["unit"]) == ("local", "dp-fedavg", "doublings")
    tracked, whose = FakeRun(), {"device": "", "user": "_user"}
    done = Done(job=job_of(job.config, "random", 0, label="x"), outputs=job.paths, keys={}, known=False)
    log_federation(job.config, done, tracked)  # type: ignore[arg-type]
    assert {name: point for name, point in tracked.metrics.items() if name.startswith("privacy/epsilon")} == {
        f"privacy/epsilon{whose[row['protects']]}_{row['accountant']}": (row["value"], row["rounds"] - 1)
        for row in (*epsilon, of_user)
    }
    assert len(epsilon) > 1
    assert {name: tag for name, tag in tracked.tags.items() if name.startswith("privacy.")} == {
        "privacy.delta": 0.001, "privacy.sampling": "poisson", "privacy.adjacency": "add-remove",
        "privacy.not_covered": first["not_covered"],
    }  # fmt: skip
    places, caption = dots(job.at("evaluation"), monkeypatch)
    assert places == [(7, details["history"][7]["utility"])], "the last of the rounds that were paid for"
    assert "The dot: here the budget ended the training, after 8 rounds and 160 updates that cost epsilon" in caption


@pytest.mark.usefixtures("strokes")
def test_where_nobody_attacks_no_device_trains_off_line_but_a_half_of_each_prior(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 clients it would be 160,000 devices, for random scores."""
    from fedprint.attacks.adversary import shadow_validation
    from fedprint.kinds.federation.building import effort

    trained: list[int] = []
    shadow_updates = shadow_validation.shadow_updates

    def counted(view: Any, devices: Any, *rest: Any) -> Any:
        trained.append(len(devices))
        return shadow_updates(view, devices, *rest)

    monkeypatch.setattr(shadow_validation, "shadow_updates", counted)
    monkeypatch.setattr(effort, "MOST_GUESSES", 15)
    for name, attacks in (("nobody", EXPERIMENT["attacks"][:1]), ("somebody", EXPERIMENT["attacks"])):  # type: ignore[index]
        job = project.run(name, {**EXPERIMENT, "attacks": attacks})
        told = json.loads((job.at("attack") / "naive" / "attack.json").read_text())
        assert told["recipe"] == ("recorded" if name == "nobody" else "clean")
        assert (len(told["subjects"]) == 15) == (name == "nobody") and len(told["subjects"]) >= 15
        rows = read_measurements(job.at("evaluation") / "rows.jsonl")
        (guess,) = (row for row in rows if (row["metric"], row["attack"], row["linkage"]) == ("ap", "chance", "update"))
        assert guess["n_questions"] == len(told["subjects"])
    assert trained[0] == 2 * 20 < trained[1]
    assert told["selected"] == "knn"


@pytest.mark.usefixtures("strokes")
def test_images_are_held_once_however_many_clients_there_are(project: Project) -> None:
    sizes = []
    for clients in (40, 60):
        project.write("strokes", {**EXPERIMENT, "data": {**EXPERIMENT["data"], "clients": clients}})  # type: ignore[dict-item]
        job = project.task("strokes")
        from fedprint.kinds.federation.stages import prepare

        prepare.run(job)
        with np.load(job.at("private") / "users.npz") as archive:
            sizes.append(len(archive["pool.y"]))
            assert len(archive["rows"]) == clients // 2 * 12
        users = load_users(job.at("private"))
        assert all(isinstance(user.examples, PooledExamples) for user in users)
        assert all(len(user.examples["y"].unique()) <= 2 for user in users)
    assert sizes[0] <= 480 and sizes[1] <= 480
