"""The stages of one small albums experiment, one after another in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import CHECKOUT, TINY, Project, run_stages

from fedprint.data.formats.files import read_json
from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import read_measurements
from fedprint.evaluation.shuffled import PermutationTest, judge_jointly, permutation_test
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.federation.graph import FEDERATION
from fedprint.kinds.federation.stages import evaluate
from fedprint.lab.graph import Task
from fedprint.store.reader import UpdateStore

KEYS = {
    "experiment", "dataset", "prior", "world", "training", "defence", "defence_params", "defended", "adversary", "view",
    "linkage", "attack", "layers", "selected", "metric", "unit", "value", "lo", "hi", "chance", "n_questions",
    "n_users", "p_chance", "seed", "direction",
}  # fmt: skip
ATTACKS = [attack["name"] for attack in TINY["attacks"]]
EVERY_ATTACK = ["chance", "knn", "svm", "mlp", "mlp-tuned", "ridge"]


def _rows(job: Task) -> list[dict[str, Any]]:
    return read_measurements(job.at("evaluation") / "rows.jsonl")


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Rows -----------------------------------------------------------------------------------------------------------------


def test_every_row_has_exactly_the_promised_keys(tiny_run: Task) -> None:
    assert all(row.keys() == KEYS for row in _rows(tiny_run))


def test_there_is_a_row_per_attack_linkage_and_metric(tiny_run: Task) -> None:
    found = Counter((r["attack"], r["linkage"], r["metric"]) for r in _rows(tiny_run) if r["attack"])
    metrics = ("ap", "ap_over_chance", "top1", "top5")
    expected = {(a, linkage, m) for a in ATTACKS for linkage in ("update", "device") for m in metrics}
    assert expected <= set(found)
    assert set(found.values()) == {1}


def test_utility_rows_have_no_attack_and_every_baseline(tiny_run: Task) -> None:
    utility = [row for row in _rows(tiny_run) if row["attack"] is None]
    assert {row["training"] for row in utility} == {"federated", "centralised", "knn", "chance"}
    assert {row["metric"] for row in utility} == {"mean_ap"}
    assert all(row["linkage"] is row["selected"] is row["layers"] is None for row in utility)


def test_metrics_are_known_and_in_their_range(tiny_run: Task) -> None:
    for row in _rows(tiny_run):
        info = METRICS[row["metric"]]
        assert row["unit"] == info.unit
        assert info.low <= row["lo"] <= row["value"] <= row["hi"] <= info.high, row
        if info.unit == "fraction" and row["chance"] is not None:
            assert 0 < row["chance"] < 1


def test_chance_is_given_with_every_attack_number_that_has_one(tiny_run: Task) -> None:
    for row in _rows(tiny_run):
        if row["metric"] in ("ap", "top1", "top5", "mean_ap"):
            assert row["chance"] is not None, row


def test_exactly_one_attack_is_selected_per_linkage_and_it_is_the_validated_one(tiny_run: Task) -> None:
    found = read_json(tiny_run.at("attack") / "naive" / "attack.json")
    best = min(found["attacks"], key=lambda name: found["attacks"][name]["log_loss"])
    for linkage in ("update", "device"):
        chosen = {r["attack"] for r in _rows(tiny_run) if r["selected"] and r["linkage"] == linkage}
        assert chosen == {best} == {found["selected"]}


def test_questions_and_users_are_counted(tiny_run: Task) -> None:
    index = UpdateStore.open(tiny_run.at("observed")).index
    anonymous = index[index["role"] == "anonymous"]
    for row in _rows(tiny_run):
        if row["attack"]:
            asked = len(anonymous) if row["linkage"] == "update" else anonymous["pseudonym"].nunique()
            assert row["n_questions"] == asked
            assert row["n_users"] == anonymous["pseudonym"].nunique() <= TINY["data"]["users"]


def test_the_condition_is_that_of_the_experiment(tiny_run: Task) -> None:
    expected = {
        "experiment": "tiny", "dataset": "albums", "prior": "random", "world": "closed", "defence": "none",
        "defence_params": None, "adversary": "naive", "view": "local", "seed": 0,
    }  # fmt: skip
    for row in _rows(tiny_run):
        assert {key: row[key] for key in expected} == expected


def test_obvious_people_are_recognised_and_the_chance_attack_recognises_nobody(tiny_run: Task) -> None:
    ap = {row["attack"]: row for row in _rows(tiny_run) if row["metric"] == "ap" and row["linkage"] == "update"}
    assert ap["ridge"]["lo"] > 2 * ap["ridge"]["chance"]
    scores = evaluate.AttackScores.load(tiny_run, "naive")
    null = permutation_test(scores.of("update", "chance"), scores.truth["update"], np.random.default_rng(0))
    assert null.p_two_sided > 0.01


def test_defences_are_in_the_rows(tiny: Task) -> None:
    config = Experiment.model_validate(
        {**tiny.config.model_dump(), "defences": [{"name": "noise", "sigma": 0.5}, {"name": "noise", "sigma": 0.1}]}
    )
    condition = evaluate.condition(replace(tiny, config=config))
    assert condition["defence"] == "noise+noise"
    assert [entry["sigma"] for entry in json.loads(condition["defence_params"])] == [0.5, 0.1]


# Details --------------------------------------------------------------------------------------------------------------


def test_details_hold_what_the_page_needs(tiny_run: Task) -> None:
    details = read_json(tiny_run.at("evaluation") / "details.json")
    assert details["config_hash"] == tiny_run.config.digest()
    assert details["store_checksum"] == UpdateStore.open(tiny_run.at("observed")).checksum()
    assert [entry["round"] for entry in details["history"]] == list(range(TINY["federation"]["rounds"]))
    assert "utility" in details["history"][-1]
    assert details["utility_metric"] == "mean_ap"
    assert set(details["checks"]) == {f"{name}/{linkage}" for name in ATTACKS for linkage in ("update", "device")}
    assert set(details["attacks"]) == set(ATTACKS)
    bins = details["by_round"]
    assert (bins[0]["first"], bins[-1]["last"], len(bins)) == (0, 7, 3)
    assert [b["first"] for b in bins[1:]] == [b["last"] + 1 for b in bins[:-1]]
    assert details["data"]["users"] == 8
    assert details["data"]["examples"] == 8 * 30


def test_ap_by_user_averages_to_the_headline(tiny_run: Task) -> None:
    details = read_json(tiny_run.at("evaluation") / "details.json")
    for linkage in ("update", "device"):
        (row,) = (r for r in _rows(tiny_run) if r["selected"] and r["metric"] == "ap" and r["linkage"] == linkage)
        by_user = [user["ap"] for user in details["by_user"][linkage]]
        assert np.mean(by_user) == pytest.approx(row["value"])


def test_shuffled_labels_of_the_run_are_at_chance(tiny_run: Task) -> None:
    found = read_json(tiny_run.at("evaluation") / "details.json")["checks"]
    names = PermutationTest.__dataclass_fields__
    verdict = judge_jointly({key: PermutationTest(**{n: test[n] for n in names}) for key, test in found.items()})
    assert verdict.passed, verdict.text


def test_written_scores_have_no_ties(tiny_run: Task) -> None:
    """Three votes among eight users tie everywhere; the random tie-break must survive the file."""
    scores = evaluate.AttackScores.load(tiny_run, "naive").of("update", "knn")
    assert all(len(np.unique(column)) == len(scores) for column in scores.T)


def test_the_plane_holds_both_roles_of_the_shown_users(tiny_run: Task) -> None:
    with np.load(tiny_run.at("evaluation") / "tsne.npz") as plane:
        assert np.isfinite(plane["xy"]).all()
        assert set(plane["role"].tolist()) == {0, 1}
        assert len(plane["xy"]) == len(plane["user"]) == len(plane["role"])


# Again ----------------------------------------------------------------------------------------------------------------


def test_attack_and_evaluation_twice_give_the_same_bytes(tiny: Task, tiny_run: Task) -> None:
    run_stages(tiny, first="attack")
    for name in ("attack", "embedding", "analysis", "evaluation"):
        assert _bytes(tiny.at(name)) == _bytes(tiny_run.at(name))


ATTACK = """
import sys
from pathlib import Path
from tiny_project import Project, run_stages
run_stages(Project(root=Path(sys.argv[1])).task("tiny"), first="attack", until="attack")
"""


def _attack_in_a_process(task: Task, root: Path, threads: int) -> dict[str, bytes]:
    threaded = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT / "tests" / "helpers"), **threaded}
    subprocess.run([sys.executable, "-c", ATTACK, str(root)], cwd=root, env=env, check=True, capture_output=True)
    return _bytes(task.at("attack"))


@pytest.mark.slow
def test_every_attack_gives_the_same_bytes_in_two_processes_with_one_and_two_threads(
    tiny: Task, project: Project
) -> None:
    attacks = [{"name": name, **({"epochs": 5} if "mlp" in name else {})} for name in EVERY_ATTACK]
    project.write("tiny", {**TINY, "attacks": attacks})
    one, two = (_attack_in_a_process(tiny, project.root, threads) for threads in (1, 2))
    assert one.keys() == {"naive/attack.json", "naive/scores.npz"}
    assert one == two


def test_the_whole_run_again_gives_the_same_bytes(tiny_run: Task, project: Project) -> None:
    again = project.run("tiny", TINY)
    outputs = {output for stage in FEDERATION.stages for output in stage.outputs} - {"overhead"}
    assert {name for name in outputs if _bytes(again.at(name)) != _bytes(tiny_run.at(name))} == set()
    assert _bytes(again.at("overhead")), "times, which differ"


# Priors, other models -------------------------------------------------------------------------------------------------


def test_captions_run_from_end_to_end_as_a_language_model(project: Project) -> None:
    project.write(
        "captions",
        {
            **TINY,
            "data": {**TINY["data"], "modality": "captions"},
            "model": {"name": "lm", "embedding": 8, "hidden": 8},
            "federation": {**TINY["federation"], "rounds": 4, "lr": 1.0},
            "attacks": [{"name": "ridge", "most_blocks": 1}],
            "split": {"priors": ["chrono"]},
        },
    )
    job = project.task("captions", "chrono")
    run_stages(job)
    rows = _rows(job)
    assert {row["metric"] for row in rows if row["attack"] is None} == {"top5_accuracy"}
    assert {row["prior"] for row in rows} == {"chrono"}


# Albums without anything personal -------------------------------------------------------------------------------------


def _null(project: Project, bias: float, seed: int) -> dict[str, PermutationTest]:
    """Attack true labels and test against permuted ones, per attack and linkage."""
    name = f"bias{bias:g}"
    values = {**TINY, "data": {**TINY["data"], "users": 12, "bias": bias}, "seeds": [0, 1, 2]}
    attacks = [{"name": attack} for attack in EVERY_ATTACK]
    project.write(name, {**values, "attacks": attacks, "federation": {**TINY["federation"], "rounds": 12}})
    job = project.task(name, seed=seed)
    run_stages(job)
    scores = evaluate.AttackScores.load(job, "naive")
    rng = np.random.default_rng([seed, 5])
    return {
        f"{attack}/{linkage}/{seed}": permutation_test(scores.of(linkage, attack), scores.truth[linkage], rng, 9999)
        for attack in EVERY_ATTACK
        for linkage in ("update", "device")
    }


@pytest.mark.slow
def test_albums_without_bias_leave_every_attack_at_chance(project: Project) -> None:
    checks = {name: test for seed in (0, 1, 2) for name, test in _null(project, 0.0, seed).items()}
    verdict = judge_jointly(checks)
    assert verdict.passed, verdict.text
    assert verdict.powerless == ()


@pytest.mark.slow
def test_albums_with_full_bias_are_recognised(project: Project) -> None:
    checks = _null(project, 1.0, 0)
    assert set(judge_jointly(checks).failed) >= {f"{name}/update/0" for name in ("knn", "svm", "mlp-tuned", "ridge")}
