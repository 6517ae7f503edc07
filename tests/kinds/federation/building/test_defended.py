"""Defended runs from end to end: clusters, who is defended, strengths that devices choose, and what it all costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_project import TINY, Project, project_in

from fedprint.data.examples import CLUSTER
from fedprint.data.formats.files import read_json
from fedprint.data.prepared import load_meta, load_users
from fedprint.data.sources.albums import Albums
from fedprint.kinds.federation.building.clustering import with_clusters, write_clusters
from fedprint.kinds.federation.building.view import open_view
from fedprint.kinds.federation.config import check_experiment
from fedprint.kinds.federation.graph import FEDERATE
from fedprint.kinds.federation.jobs import job_of
from fedprint.kinds.federation.kind import write_page
from fedprint.kinds.federation.stages import prepare
from fedprint.kinds.federation.stages.attack_scores import AttackScores
from fedprint.kinds.federation.stages.evaluating.strengths import group_users
from fedprint.lab.graph import Task
from fedprint.lab.keys import stage_key
from fedprint.models.networks import build_network
from fedprint.ranking import average_precision
from fedprint.store.reader import UpdateStore
from fedprint.types import FedprintError

MM_AUG: dict[str, Any] = {"name": "mm-aug", "alpha": [0, 0.5, 2], "clusters": 6}
DEFENDED: dict[str, Any] = {**TINY, "defences": [MM_AUG, {"name": "noise", "sigma": 1e-4}]}
CHOICE: dict[str, Any] = {**TINY, "defences": [{**MM_AUG, "alpha": [0, 1]}], "analyses": []}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    """Return a finished run in which half of the devices do nothing."""
    with project_in(tmp_path_factory.mktemp("defended")) as project:
        yield project.run("choice", CHOICE)


def federated(project: Project, values: dict[str, Any]) -> Task:
    return project.run("defended", values, until="federate")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---- clusters ------------------------------------------------------------------------------------------------------


def test_the_adversary_sees_the_modes_that_devices_drew_from(job: Task) -> None:
    background = load_users(job.at("background"))
    seen = with_clusters(background, job.at("public"))
    modes = torch.cat([user.examples[CLUSTER] for user in seen])
    assert torch.unique(modes).tolist() == list(range(6))
    view, _ = open_view(job, "adaptive")
    assert torch.equal(torch.cat([user.examples[CLUSTER] for user in view.background]), modes)
    shown = read_json(job.at("public") / "clusters.json")
    assert shown["clusters"] == 6
    assert shown["examples_per_cluster"]["most"] == int(torch.bincount(modes).max())


def test_without_mm_aug_there_are_no_clusters(tiny_run: Task) -> None:
    public = tiny_run.at("public")
    assert [path.name for path in public.iterdir()] == ["clusters.json"]
    assert read_json(public / "clusters.json") == {"clusters": 0, "examples_per_cluster": None}
    background = load_users(tiny_run.at("background"))
    assert with_clusters(background, public) == background


def clustered(job: Task, out: Path, **settings: Any) -> np.ndarray:
    """Return the clusters of the finished run's background under another mm-aug."""
    config = check_experiment({"name": "c", **CHOICE, "defences": [{**MM_AUG, **settings}]}, "test")
    background = load_users(job.at("background"))
    write_clusters(out, config, load_meta(job.at("meta")), background, 0)
    return torch.cat([user.examples[CLUSTER] for user in with_clusters(background, out)]).numpy()


def test_features_of_the_tasks_model_make_other_modes_and_the_same_again(job: Task, tmp_path: Path) -> None:
    first, again, pixels = (clustered(job, tmp_path, features=features) for features in ("model", "model", "pixels"))
    assert first.tolist() == again.tolist() != pixels.tolist()
    assert pixels.tolist() == clustered(job, tmp_path, features="auto").tolist()


def test_features_of_a_network_with_trained_weights(job: Task, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from fedprint.models.components import MobileNet
    from fedprint.rng import torch_rng

    trained = build_network(MobileNet(normalisation="frozen"), (3, 32, 32), 5, False)
    trained.reset(torch_rng(0))
    save_file(trained.state_dict(), tmp_path / "weights.safetensors")
    settings = {"features": "imagenet", "weights": str(tmp_path / "weights.safetensors")}
    found = clustered(job, tmp_path / "public", **settings)
    assert np.bincount(found).min() >= 1 and len(np.bincount(found)) == 6
    with pytest.raises(FedprintError, match=r"mm-aug\.weights: imagenet features need a file"):
        clustered(job, tmp_path / "public", features="imagenet")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [({"features": "tfidf"}, r"holds pictures, not for tfidf; use pixels"),
     ({"clusters": 10_000}, r"10000 clusters for \d+ background examples; lower clusters")],
)  # fmt: skip
def test_clusters_that_cannot_be_are_refused(job: Task, tmp_path: Path, settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(FedprintError, match=fault):
        clustered(job, tmp_path, **settings)


def test_texts_are_clustered_by_their_words(project: Project) -> None:
    values = {
        **CHOICE,
        "data": {**TINY["data"], "modality": "captions"},
        "model": {"name": "lm", "embedding": 8, "hidden": 8},
        "federation": {**TINY["federation"], "rounds": 2, "central_epochs": 0},
        "attacks": [{"name": "chance"}],
    }
    job = federated(project, values)
    assert read_json(job.at("public") / "clusters.json")["clusters"] == 6


def test_two_clusterings_in_one_experiment_are_refused() -> None:
    with pytest.raises(FedprintError, match="share one clustering"):
        check_experiment({"name": "c", **CHOICE, "defences": [MM_AUG, {**MM_AUG, "clusters": 7}]}, "test")


# ---- who is defended, and how strongly -----------------------------------------------------------------------------


def test_every_device_has_its_strength_in_the_truth(job: Task) -> None:
    found = read_json(job.at("truth") / "strengths.json")
    users = [user.user_id for user in load_users(job.at("prior"))]
    assert found.keys() == {f"user-{user}-{role}" for user in users for role in ("prior", "anonymous")}
    sizes = {role: {u.user_id: len(u.examples["y"]) for u in load_users(job.at(folder))}
             for role, folder in (("prior", "prior"), ("anonymous", "private"))}  # fmt: skip
    view, _ = open_view(job, "adaptive")
    index = UpdateStore.open(job.at("observed")).index
    for device, chosen in found.items():
        (settings,) = chosen["defences"]
        assert settings["alpha"] in (0, 1) and chosen["protected"] == (settings["alpha"] == 1)
        _, user, role = device.split("-")
        assert sizes[role][int(user)] > 0
    total = {d: sizes[d.split("-")[2]][int(d.split("-")[1])] * (2 if c["protected"] else 1) for d, c in found.items()}
    assert set(index["num_examples"]) <= set(total.values())
    assert view.store.index.equals(index)


def test_ap_is_reported_apart_for_those_who_protect_themselves(job: Task) -> None:
    rows = [row for row in lines(job.at("evaluation") / "analysis_rows.jsonl") if row["analysis"] == "strengths"]
    ap = {(row["linkage"], row["protected"], row["strength"]): row for row in rows if row["metric"] == "ap"}
    assert set(ap) == {
        (linkage, protected, strength)
        for linkage in ("update", "device")
        for protected, strength in (
            (False, "any"), (True, "any"), (False, "mm-aug alpha=0"), (True, "mm-aug alpha=1"),
        )
    }  # fmt: skip
    chosen = read_json(job.at("truth") / "strengths.json")
    details = read_json(job.at("evaluation") / "details.json")
    for linkage in ("update", "device"):
        of_user = {row["user_id"]: row["ap"] for row in details["by_user"][linkage]}
        safe = {user: chosen[f"user-{user}-anonymous"]["protected"] for user in of_user}
        for protected in (False, True):
            expected = np.mean([of_user[user] for user in of_user if safe[user] == protected])
            row = ap[linkage, protected, "any"]
            assert row["value"] == pytest.approx(expected)
            assert row["n_users"] == sum(value == protected for value in safe.values())
            assert row["lo"] <= row["value"] <= row["hi"]
    assert {row["attack"] for row in rows} == {details["selected"]}


def test_the_parts_add_up_to_the_whole(job: Task) -> None:
    rows = [row for row in lines(job.at("evaluation") / "analysis_rows.jsonl") if row["analysis"] == "strengths"]
    parts = [r for r in rows if r["metric"] == "ap" and r["strength"] == "any" and r["linkage"] == "update"]
    selected = read_json(job.at("attack") / "adaptive" / "attack.json")["selected"]
    scores = AttackScores.load(job, "adaptive")
    whole = np.nanmean(average_precision(scores.of("update", selected), scores.truth["update"]))
    assert sum(row["value"] * row["n_users"] for row in parts) == pytest.approx(
        whole * sum(r["n_users"] for r in parts)
    )


def test_the_page_sets_the_protected_and_the_unprotected_apart(job: Task) -> None:
    folder = Path("reports") / job.config.name
    write_page(job.config, [job.at("evaluation")], folder)
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "Chosen strengths" in page
    table = next((folder / "tables").glob("*strengths*.csv")).read_text(encoding="utf-8")
    shown = [set(line.split(",")) for line in table.splitlines()]
    for users, strength in (("protected", "mm-aug alpha=1"), ("unprotected", "mm-aug alpha=0")):
        for chosen in ("all of them", strength):
            assert sum({users, chosen, "one update"} <= line for line in shown) == 1


def test_groups_are_by_strength_and_by_protection() -> None:
    groups = group_users({0: ("a=0", False), 1: ("a=1", True), 2: ("a=2", True), 3: ("a=0", False)})
    assert [(group.strength, group.protected, group.columns) for group in groups] == [
        ("any", False, (0, 3)), ("any", True, (1, 2)), ("a=0", False, (0, 3)), ("a=1", True, (1,)), ("a=2", True, (2,)),
    ]  # fmt: skip


def test_where_all_are_defended_alike_there_is_nothing_to_part(tiny_run: Task) -> None:
    rows = lines(tiny_run.at("evaluation") / "analysis_rows.jsonl")
    assert rows and not any(row["analysis"] == "strengths" for row in rows)


def test_the_condition_says_who_is_defended(job: Task, tiny_run: Task) -> None:
    assert {row["defended"] for row in lines(job.at("evaluation") / "rows.jsonl")} == {"everyone"}
    assert {row["defended"] for row in lines(tiny_run.at("evaluation") / "rows.jsonl")} == {None}


def test_in_the_papers_setting_the_adversarys_devices_stay_clean(project: Project, tiny_run: Task) -> None:
    job = federated(project, {**DEFENDED, "threat": {"defended": "anonymous"}, "analyses": []})
    found = read_json(job.at("truth") / "strengths.json")
    assert {len(chosen["defences"]) for device, chosen in found.items() if device.endswith("-anonymous")} == {2}
    assert all(c == {"protected": False, "defences": []} for d, c in found.items() if d.endswith("-prior"))
    plain, other = (UpdateStore.open(j.at("observed")).index for j in (tiny_run, job))
    prior = plain["role"] == "prior"
    assert (plain["num_examples"][prior] == other["num_examples"][prior]).all()
    assert (plain["num_examples"][~prior] != other["num_examples"][~prior]).any()


def test_who_is_defended_decides_on_the_store_and_what_the_adversary_knows_does_not() -> None:
    def key(threat: dict[str, Any]) -> str:
        config = check_experiment({"name": "a", **DEFENDED, "threat": threat}, "test")
        return stage_key(job_of(config, "random", 0, label="a"), FEDERATE, {}, "cpu")

    assert key({"defended": "everyone"}) == key({"shadow_rounds": 3}) != key({"defended": "anonymous"})


# ---- what it costs -------------------------------------------------------------------------------------------------


def test_overhead_counts_examples_and_seconds(job: Task, tiny_run: Task) -> None:
    chosen = read_json(job.at("truth") / "strengths.json")
    sizes = {f"user-{u.user_id}-{role}": len(u.examples["y"])
             for role, folder in (("prior", "prior"), ("anonymous", "private"))
             for u in load_users(job.at(folder))}  # fmt: skip
    added = sum(sizes[device] for device, found in chosen.items() if found["protected"])
    counted = read_json(job.at("evaluation") / "details.json")["data_overhead"]
    assert counted == {
        "defended_devices": len(sizes),
        "examples_before": sum(sizes.values()),
        "examples_after": sum(sizes.values()) + added,
    }
    timed = read_json(job.at("overhead") / "overhead.json")
    assert counted.items() <= timed.items()
    assert timed["cluster_seconds"] > 0 < timed["data_seconds_per_device"]
    assert 0 <= timed["update_seconds_per_device"] < 1
    assert read_json(tiny_run.at("evaluation") / "details.json")["data_overhead"]["defended_devices"] == 0


# ---- the background is other people's ------------------------------------------------------------------------------


def test_a_user_in_the_background_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Albums.load

    def mixed(*args: Any) -> Any:
        dataset = load(*args)
        return replace(dataset, background=(*dataset.background, dataset.users[3]))

    monkeypatch.setattr(Albums, "load", mixed)
    project.write("mixed", TINY)
    job = project.task("mixed")
    with pytest.raises(FedprintError, match=r"1 user\(s\), such as 3, are in the background too; correct the source"):
        prepare.run(job)
    assert not job.at("prior").exists()


def test_identical_examples_are_counted(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Albums.load

    def copied(*args: Any) -> Any:
        dataset = load(*args)
        thief = replace(dataset.users[0], user_id=10_000)
        return replace(dataset, background=(*dataset.background, thief))

    project.write("copied", TINY)
    job = project.task("copied")
    prepare.run(job)
    before = read_json(job.at("samples") / "background.json")
    assert before["users"] == 8 and before["identical"] == 0
    monkeypatch.setattr(Albums, "load", copied)
    prepare.run(job)
    after = read_json(job.at("samples") / "background.json")
    assert after == {"users": 9, "examples": before["examples"] + 30, "identical": 30}
