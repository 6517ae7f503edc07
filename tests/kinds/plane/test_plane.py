"""Sweeps: the file becomes places and requests; dispatch by its key; one-line errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_lab import FakeLab
from fake_points import fake_point
from tiny_project import CHECKOUT, TINY, Project

from fedprint.data.formats.files import read_json
from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.kinds import driver
from fedprint.kinds.config_files import read_yaml
from fedprint.kinds.federation.config import load_experiment
from fedprint.kinds.laboratory import laboratory
from fedprint.kinds.plane.config import Plane, load_plane
from fedprint.kinds.plane.kind import PlaneKind, make_entries
from fedprint.kinds.registry import kind_of
from fedprint.kinds.requests import request_for
from fedprint.lab.graph import Job
from fedprint.lab.runner import JobFailed
from fedprint.types import FedprintError

SWEEP: Mapping[str, Any] = {
    "report": {"title": "A sweep"},
    "experiment": "tiny",
    "with": {"federation": {"rounds": 4}},
    "seeds": [0, 1],
    "strategies": [
        {"name": "noise", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.1, 1]},
        {"name": "quantise", "defences": [{"name": "quantise", "bits": "$strength"}], "strengths": [2]},
    ],
    "fast": {"seeds": [0], "with": {"federation": {"rounds": 2}}},
}


@pytest.fixture
def swept(project: Project) -> Project:
    project.write("tiny", {**TINY, "fast": {"federation": {"rounds": 7, "epochs": 2}}})
    project.write("sweep", SWEEP)
    return project


def plane_of(project: Project, name: str = "sweep", **asked: Any) -> Plane:
    return load_plane(request_for(project.root, name, **asked))


def test_a_sweep_has_every_point_at_every_seed_and_no_defence_first(swept: Project) -> None:
    plane = plane_of(swept)
    assert [(place.strategy, place.strength) for place in plane.points] == [
        (None, None), ("noise", 0.1), ("noise", 1), ("quantise", 2),
    ]  # fmt: skip
    assert plane.points[0].config.defences == ()
    assert plane.points[2].config.defences[0].sigma == 1  # type: ignore[union-attr]
    assert [seed for _, seed in plane.runs] == [0] * 4 + [1] * 4, "whole planes, seed by seed"
    assert plane.config.federation.rounds == 4 and plane.config.analyses == ()


def test_a_path_in_a_plane_counts_from_the_planes_folder(
    swept: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mine")
    (folder / "base.yaml").write_text(yaml.safe_dump({**TINY, "federation": {**TINY["federation"], "lr": 0.17}}))
    (folder / "mine.yaml").write_text(yaml.safe_dump({**SWEEP, "experiment": "base.yaml"}))
    assert plane_of(swept, str(folder / "mine.yaml")).config.federation.lr == 0.17


def test_fast_and_assignments_reach_the_sweep_or_its_experiment(swept: Project) -> None:
    words = ["strategies.0.strengths=[0.5]", "federation.lr=0.2", "threat.defended=anonymous"]
    plane = plane_of(swept, fast=True, assignments=words)
    assert plane.settings.seeds == (0,) and [place.strength for place in plane.points] == [None, 0.5, 2]
    for place in plane.points:
        federation = place.config.federation
        assert (federation.rounds, federation.epochs, federation.lr) == (2, 2, 0.2), "the sweep comes last"
        assert place.config.threat.defended == "anonymous" and place.config.fast


def test_against_no_defence_the_adversary_learns_off_line_unless_a_file_says_otherwise(swept: Project) -> None:
    assert load_experiment(request_for(swept.root, "tiny")).threat.learn_from == "records"
    plane = plane_of(swept)
    assert {place.config.threat.learn_from for place in plane.points} == {"offline"}
    assert "learn_from: offline" in plane.text()
    recorded = {"threat": {"learn_from": "records"}}
    swept.write("asked", {**SWEEP, "with": recorded})
    swept.write("below", {**TINY, **recorded})
    swept.write("of-below", {**SWEEP, "experiment": "below"})
    assert {plane_of(swept, name).config.threat.learn_from for name in ("asked", "of-below")} == {"records"}
    words = ["threat.learn_from=records"]
    assert plane_of(swept, assignments=words).config.threat.learn_from == "records"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"strategies": []}, "strategies: .*at least 1"),
        ({"strategies": [SWEEP["strategies"][0]] * 2}, "names must differ"),
        ({"strategies": [{**SWEEP["strategies"][0], "strengths": [-1]}]}, r"noise at -1: defences.0.sigma"),
        ({"strategies": [{**SWEEP["strategies"][0], "defences": [{"name": "sign"}]}]}, r"write \$strength where"),
        ({"experiment": "sweep"}, "'sweep' is no single experiment"),
        ({"experiment": "nosuch"}, "unknown experiment 'nosuch'"),
        ({"seed": 3}, "seed: .*allowed keys: report, experiment, with, prior, seeds, strategies"),
    ],
)
def test_a_bad_sweep_is_refused_in_one_line(swept: Project, changed: dict[str, Any], words: str) -> None:
    swept.write("bad", {**SWEEP, **changed})
    with pytest.raises(FedprintError, match=words) as caught:
        plane_of(swept, "bad")
    assert "\n" not in str(caught.value)


def test_files_are_told_apart_by_their_own_keys(swept: Project) -> None:
    kinds = {name: kind_of(request_for(swept.root, name).values).name for name in ("sweep", "tiny")}
    assert kinds == {"sweep": "plane", "tiny": "federation"}
    assert kind_of(read_yaml(CHECKOUT / "configs" / "studies" / "albums.yaml")).name == "study"
    assert kind_of(read_yaml(CHECKOUT / "configs" / "experiments" / "paper-tables.yaml")).name == "suite"


def answer(job: Job) -> Point:
    return fake_point(0.3 if job.config.defences else 0.8, 0.7, job.seed)  # type: ignore[attr-defined]


def test_every_point_has_its_own_job_that_says_what_varies(swept: Project) -> None:
    jobs = PlaneKind().jobs(plane_of(swept))
    assert len({job.label for job in jobs}) == len(jobs) == 8
    assert jobs[0].varies == {"strategy": "no defence"}
    assert jobs[1].varies == {"strategy": "noise", "strength": 0.1, "sigma": 0.1}
    head = PlaneKind().head(plane_of(swept), jobs[1])
    assert head.group == "sweep" and head.name == "sweep noise 0.1 seed 0"
    assert {"sigma", "strategy", "strength", "federation.rounds", "model.name", "view"} <= set(head.params)


def test_a_place_that_diverges_is_told_and_without_a_base_nothing_is(swept: Project) -> None:
    plane = plane_of(swept)
    jobs = PlaneKind().jobs(plane)
    diverged = JobFailed("x: stage federate: diverged", stage="federate", exit_code=2, reason="training diverged")

    def answers(fails: str) -> list[Point | FedprintError]:
        return [diverged if fails in job.label else answer(job) for job in jobs]

    entries = make_entries(plane, answers("noise 1 seed 1"))
    assert [len(entry.points) for entry in entries] == [2, 2, 1, 2]
    assert entries[2].error == "1 of 2 seeds: training diverged"
    with pytest.raises(FedprintError, match="diverged"):
        make_entries(plane, answers("no defence"))


@pytest.mark.parametrize(("exit_code", "failed"), [(2, []), (1, ["noise 1 seed 1"])])
def test_what_crashed_is_a_failure_and_what_diverged_a_finding(
    swept: Project, exit_code: int, failed: list[str]
) -> None:
    error = JobFailed("no", stage="federate", exit_code=exit_code, reason="no")
    lab = FakeLab(swept.root, lambda job: error if job.label == "noise 1 seed 1" else answer(job))
    findings = PlaneKind().carry_out(plane_of(swept), lab, swept.root / "reports" / "sweep")
    assert list(findings.failures) == failed and len(findings.done) == 7
    places = read_json(swept.root / "reports" / "sweep" / "plane.json")["places"]
    assert [place["error"] for place in places] == [None, None, "1 of 2 seeds: no", None]
    assert not [name for name in findings.metrics if "seconds" in name], "times differ from run to run"
    assert {row["strategy"] for row in findings.plots[0].rows} == {"no defence", "noise", "quantise"}


@pytest.mark.slow
def test_a_plane_on_tiny_albums_from_end_to_end(swept: Project) -> None:
    asked = request_for(swept.root, "sweep", fast=True)
    folder = driver.run(asked, jobs=2)
    assert folder.name == "sweep-fast" and (folder / "index.html").is_file()
    entries = (swept.root / "work" / "cache").glob("*/[!.]*")
    kept = {path.parent.name for path in entries if path.parent.name != ".locks"}
    assert kept == {"prepare", "choose", "collect", "point"}, "updates go"
    found = tracked(swept, "fedprint planes")
    varied = {(run.data.params["strategy"], run.data.params.get("sigma")) for run in found}
    assert varied == {("no defence", None), ("noise", "0.1"), ("noise", "1.0"), ("quantise", None)}
    needed = {"utility", "ap_update", "ap_device"}
    measured = {run.data.params.get("strength") for run in found if needed <= run.data.metrics.keys()}
    assert measured == {None, "0.1", "2.0"}, "of noise 1 training diverges"
    ends = {run.data.params.get("strength"): run.info.status for run in found}
    assert ends == {None: "FINISHED", "0.1": "FINISHED", "1.0": "FAILED", "2.0": "FINISHED"}
    assert {run.data.params["bits"] for run in found if run.data.params["strategy"] == "quantise"} == {"2.0"}
    rows = (folder / "measurements.jsonl").read_bytes()
    driver.run(asked, jobs=2)
    assert (folder / "measurements.jsonl").read_bytes() == rows and len(tracked(swept, "fedprint planes")) == 4


@pytest.mark.slow
def test_kept_updates_stay_in_the_cache_and_are_named_by_the_findings(swept: Project) -> None:
    swept.write(
        "one", {**SWEEP, "seeds": [0], "strategies": SWEEP["strategies"][1:], "with": {"federation": {"rounds": 2}}}
    )
    plane = plane_of(swept, "one")
    with laboratory(swept.root, PlaneKind(), plane, jobs=2, keep=True) as lab:
        findings = PlaneKind().carry_out(plane, lab, swept.root / "reports" / "one")
        assert all((done.outputs["observed"] / "complete.json").is_file() for done in findings.done)


def tracked(project: Project, experiment: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{project.root / 'mlflow.db'}")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id]))


def test_every_shipped_sweep_resolves() -> None:
    folder: Path = CHECKOUT / "configs" / "experiments"
    names = [path.stem for path in folder.glob("*.yaml") if "strategies" in read_yaml(path)]
    assert {"albums-plane", "mnist-writers-plane", "blog-plane", "ahcd-plane", "blog-public", "papers-plane"} | {
        "ratebeer-plane",
        "reference-plane",
        "counter-ablation",
        "counter-ablation-albums",
        "counter-ablation-blog",
    } <= set(names)
    for name in names:
        for fast in (False, True):
            plane = load_plane(request_for(CHECKOUT, name, fast=fast))
            if plane.settings.audit is not None:  # by epsilon, not by strategy
                assert [analysis.name for analysis in plane.config.analyses] == ["membership"]
                continue
            if fast:  # a few of them
                assert plane.settings.strategies
                continue
            if name == "mnist-writers-plane":
                assert sum(len(s.strengths) == 4 for s in plane.settings.strategies) >= 8
            if name in ("openmoji-counts", "ahcd-many", "ahcd-half"):  # of the count alone; ahcd-plane has mm-aug
                continue
            if name.startswith("counter-linked"):  # one comparison
                assert [s.name for s in plane.settings.strategies] == ["rand-aug", "counter-aug"]
                continue
            assert any(s.name == "mm-aug" for s in plane.settings.strategies)  # the papers' defence beside every other
