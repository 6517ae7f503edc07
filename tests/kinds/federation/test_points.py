"""Points through the real lab: what they hold, what changes them, and what a kill leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_project import TINY, Project, project_in

from fedprint.evaluation.tradeoffs.tradeoff import Point, UtilityNumber, normalised_utility, relative
from fedprint.kinds import PRELOADED
from fedprint.kinds.federation.config import Experiment, check_experiment
from fedprint.kinds.federation.graph import POINT
from fedprint.kinds.federation.jobs import job_of, point_job
from fedprint.kinds.federation.points import read_point
from fedprint.lab import keys
from fedprint.lab.graph import Job
from fedprint.lab.keys import stage_key
from fedprint.lab.runner import Done, Lab
from fedprint.lab.workers.pool import LocalPool
from fedprint.types import FedprintError

SMALL: dict[str, Any] = {
    **TINY,
    "federation": {**TINY["federation"], "rounds": 6, "central_epochs": 0},
    "analyses": [],
}


def experiment(**changes: Any) -> Experiment:
    return check_experiment({"name": "tiny", **SMALL, **changes}, "test")


def job(config: Experiment, seed: int = 0) -> Job:
    return point_job(config, "random", seed, label=f"seed {seed}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project_in(tmp_path_factory.mktemp("points")) as project:
        yield project


@pytest.fixture(scope="module")
def lab(home: Project) -> Iterator[Lab]:
    with LocalPool(PRELOADED) as pool, Lab(root=home.root, pool=pool, jobs=2) as lab:
        yield lab


@pytest.fixture(scope="module")
def done(lab: Lab) -> Done:
    return lab.one(job(experiment()), title="points")


@pytest.fixture(scope="module")
def point(done: Done) -> Point:
    return read_point(done.outputs["point"])


def stages(root: Path) -> set[str]:
    entries = (root / "work" / "cache").glob("*/[!.]*")
    return {path.parent.name for path in entries if path.parent.name != ".locks"}


def test_a_point_holds_the_numbers_of_the_evaluation_and_nothing_big_stays(lab: Lab, done: Done, point: Point) -> None:
    rows = {(row["metric"], row["attack"], row["linkage"], row["training"]): row for row in point.rows}
    assert point.utility.value == rows["mean_ap", None, None, "federated"]["value"]
    (number,) = [number for number in point.attacks if number.selected]
    assert len(point.attacks) == sum(attack.name != "chance" for attack in experiment().attacks)
    row = rows["ap", number.attack, "update", "federated"]
    assert row["selected"] is True
    assert (number.value, number.lo, number.hi, number.chance) == tuple(row[k] for k in ("value", "lo", "hi", "chance"))
    assert sum(number.by_user.values()) / len(number.by_user) == pytest.approx(number.value)
    assert (point.chosen, point.attack("naive"), point.data_factor) == (number, number, 1.0)
    assert point.strongest.value == max(
        row["value"] for key, row in rows.items() if key[0] == "ap" and key[2] == "update"
    )
    assert point.overhead["federation_seconds"] > 0  # type: ignore[operator]
    assert point.key == done.keys["point"]
    assert stages(lab.root) == {"prepare", "choose", "collect", "point"}, "updates are deleted"
    kept = sorted(done.outputs["point"].iterdir())
    assert [path.name for path in kept] == ["analysis_rows.jsonl", "details.json", "point.json", "rows.jsonl"]
    assert sum(path.stat().st_size for path in kept) < 1e6


def test_a_point_is_computed_once_whatever_it_is_called(lab: Lab, done: Done) -> None:
    for other in (experiment(report={"title": "Another title"}), experiment(seeds=[4, 0])):
        again = lab.one(job(other), title="points")
        assert again.known and again.outputs == done.outputs
    assert not lab.knows(job(experiment(), 1), "point")


def test_other_rules_judge_a_point_anew_without_another_federation(lab: Lab, done: Done, point: Point) -> None:
    other = read_point(lab.one(job(experiment(evaluation={"resamples": 300})), title="anew").outputs["point"])
    assert other.key != point.key and other.chosen.value == point.chosen.value
    (log,) = (lab.root / "work" / "logs" / "anew").iterdir()
    assert log.name.endswith(".point.log"), "the only stage that ran"


def test_the_numbers_are_those_of_a_federations_own_stages(home: Project, point: Point) -> None:
    task = home.run("plain", SMALL)
    lines = (task.at("evaluation") / "rows.jsonl").read_text().splitlines()
    assert list(point.rows) == [{**json.loads(line), "experiment": "point"} for line in lines]


def keys_of(made: Job) -> dict[str, str]:
    found: dict[str, str] = {}
    for stage in POINT.stages:
        before = {output: found[POINT.maker(output).name] for output in stage.inputs}
        found[stage.name] = stage_key(made, stage, before, "cpu")
    return found


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"data": {**TINY["data"], "bias": 0.5}}, "prepare choose federate ask attack analyse collect point"),
        ({"defences": [{"name": "noise", "sigma": 0.1}]}, "federate ask attack analyse collect point"),
        ({"federation": {**SMALL["federation"], "rounds": 7}}, "choose federate ask attack analyse collect point"),
        (
            {"federation": {**SMALL["federation"], "backend": "threaded"}},
            "choose federate ask attack analyse collect point",
        ),
        ({"analyses": [{"name": "training-updates"}]}, "ask analyse collect point"),
        ({"attacks": [{"name": "knn", "k": 3}]}, "attack analyse collect point"),
        ({"evaluation": {"resamples": 300}}, "point"),
        ({"name": "other", "report": {"title": "other"}, "fast": True}, ""),
    ],
)
def test_a_setting_changes_the_stages_that_read_it_and_all_after(
    home: Project, settings: dict[str, Any], changed: str
) -> None:
    before, after = keys_of(job(experiment())), keys_of(job(experiment(**settings)))
    assert [stage for stage in before if before[stage] != after[stage]] == changed.split()


def test_code_changes_the_stages_that_it_computes(home: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    before, plain = keys_of(job(experiment())), keys.source_digest
    monkeypatch.setattr(keys, "source_digest", lambda sources: plain(sources) + ("x" if "attacks" in sources else ""))
    after = keys_of(job(experiment()))
    assert [stage for stage in before if before[stage] != after[stage]] == ["attack", "analyse", "collect", "point"]


def test_points_share_what_they_have_in_common_with_a_federation(home: Project) -> None:
    config = experiment()
    whole = keys_of(replace(job_of(config, "random", 0, label="x"), work=job(config).work))
    assert {name for name, key in keys_of(job(config)).items() if whole[name] == key} >= {
        "prepare", "choose", "federate", "ask", "attack", "analyse",
    }  # fmt: skip


def test_points_with_another_attack_share_a_kept_federation(lab: Lab) -> None:
    keeping = replace(lab, keep=True)
    first = keeping.one(job(experiment(), 3), title="points")
    assert (first.outputs["observed"] / "complete.json").is_file()
    other = lab.one(job(experiment(attacks=[{"name": "knn", "k": 3}]), 3), title="points")
    assert other.keys["federate"] == first.keys["federate"] and other.keys["attack"] != first.keys["attack"]
    found, base = read_point(other.outputs["point"]), read_point(first.outputs["point"])
    assert found.attacks[0].attack == "knn" and found.utility == base.utility
    assert found.overhead["federation_seconds"] == base.overhead["federation_seconds"], "it was not trained again"


def utility(metric: str, value: float, chance: float = 0.1) -> UtilityNumber:
    return UtilityNumber(metric=metric, value=value, lo=value, hi=value, chance=chance, n_questions=10, n_users=5)


def test_utility_is_normalised_by_the_papers_rule(point: Point) -> None:
    assert relative(0.6, utility("accuracy", 0.8), "accuracy") == pytest.approx(0.75)
    assert relative(0.9, utility("accuracy", 0.8), "accuracy") > 1
    error = utility("mae", 1.0, chance=1.5)
    assert relative(1.25, error, "mae") == pytest.approx(0.5)
    assert relative(1.6, error, "mae") == pytest.approx(-0.2)
    with pytest.raises(FedprintError, match="no better than chance"):
        relative(1.0, utility("mae", 1.6, chance=1.5), "mae")
    with pytest.raises(FedprintError, match="in mae has no share of one in accuracy"):
        relative(1.0, utility("accuracy", 1), "mae")
    assert normalised_utility(point, point) == 1
    stronger = replace(point.chosen, adversary="adaptive", value=0.99)
    both = replace(point, attacks=(*point.attacks, stronger))
    assert both.strongest is stronger and both.attack("naive") is point.chosen
    unchosen = replace(stronger, selected=False)
    assert replace(both, attacks=(*point.attacks, unchosen)).chosen is point.chosen
    with pytest.raises(FedprintError, match="'adaptive' did not attack"):
        point.attack("adaptive")
