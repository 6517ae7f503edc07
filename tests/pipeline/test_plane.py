"""Sweeps: the file becomes places and requests; dispatch by its key; one-line errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_points import fake_point
from tiny_project import CHECKOUT, TINY, Project

from fedprint.evaluation.tradeoff import Point
from fedprint.kinds.plane import plane as planes
from fedprint.cli.main import main
from fedprint.kinds.federation.config import load_experiment
from fedprint.kinds.config_files import kind_named, read_yaml
from fedprint.kinds.plane.plane import load_plane, make_entries, run_plane
from fedprint.kinds.plane.point_pool import PointRequest
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


def test_a_sweep_has_every_place_at_every_seed_and_no_defence_first(swept: Project) -> None:
    plane = load_plane(swept.root, "sweep")
    assert [(place.strategy, place.strength) for place in plane.places] == [
        (None, None), ("noise", 0.1), ("noise", 1), ("quantise", 2),
    ]  # fmt: skip
    assert plane.places[0].config.defences == ()
    assert plane.places[2].config.defences[0].sigma == 1  # type: ignore[union-attr]
    assert [request.seed for request in plane.requests] == [0] * 4 + [1] * 4, "whole planes, seed by seed"
    assert plane.config.federation.rounds == 4 and plane.config.analyses == ()


def test_fast_and_assignments_reach_the_sweep_or_its_experiment(swept: Project) -> None:
    words = ["strategies.0.strengths=[0.5]", "federation.lr=0.2", "threat.defended=anonymous"]
    plane = load_plane(swept.root, "sweep", fast=True, assignments=words)
    assert plane.settings.seeds == (0,) and [place.strength for place in plane.places] == [None, 0.5, 2]
    for place in plane.places:
        federation = place.config.federation
        assert (federation.rounds, federation.epochs, federation.lr) == (2, 2, 0.2), "the sweep comes last"
        assert place.config.threat.defended == "anonymous" and place.config.fast


def test_against_no_defence_the_adversary_learns_off_line_unless_a_file_says_otherwise(swept: Project) -> None:
    assert load_experiment(swept.root, "tiny").threat.learn_from == "records"
    plane = load_plane(swept.root, "sweep")
    assert {place.config.threat.learn_from for place in plane.places} == {"offline"}
    assert "learn_from: offline" in planes.dump_plane(plane)
    recorded = {"threat": {"learn_from": "records"}}
    swept.write("asked", {**SWEEP, "with": recorded})
    swept.write("below", {**TINY, **recorded})
    swept.write("of-below", {**SWEEP, "experiment": "below"})
    assert {load_plane(swept.root, name).config.threat.learn_from for name in ("asked", "of-below")} == {"records"}
    words = ["threat.learn_from=records"]
    assert load_plane(swept.root, "sweep", assignments=words).config.threat.learn_from == "records"


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
        load_plane(swept.root, "bad")
    assert "\n" not in str(caught.value)


def test_a_sweep_is_no_experiment(swept: Project) -> None:
    assert kind_named(swept.root, "sweep") == "sweep" and kind_named(swept.root, "tiny") == "federation"
    with pytest.raises(FedprintError, match="'sweep' is a sweep over defences"):
        load_experiment(swept.root, "sweep")


def results(requests: Sequence[PointRequest], fails: str = "") -> list[Point | FedprintError]:
    return [
        FedprintError("training diverged")
        if fails and fails in request.label
        else fake_point(0.3 if request.config.defences else 0.8, 0.7, request.seed)
        for request in requests
    ]


def test_a_place_that_diverges_is_told_and_without_a_base_nothing_is(swept: Project) -> None:
    plane = load_plane(swept.root, "sweep")
    entries = make_entries(plane, results(plane.requests, fails="noise 1 seed 1"))
    assert [len(entry.points) for entry in entries] == [2, 2, 1, 2]
    assert entries[2].error == "1 of 2 seeds: training diverged"
    with pytest.raises(FedprintError, match="diverged"):
        make_entries(plane, results(plane.requests, fails="no defence"))


def test_the_command_runs_a_sweep_and_shows_it(
    swept: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def run_points(requests: Sequence[PointRequest], *, jobs: int, title: str) -> list[Point | FedprintError]:
        asked.append(jobs)
        return results(requests)

    monkeypatch.setattr(planes, "run_points", run_points)
    monkeypatch.setattr(planes, "_log", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["fedprint", "run", "sweep", "--jobs", "3"])
    monkeypatch.setenv("COLUMNS", "160")
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code and asked == [3]
    assert "no defence" in capsys.readouterr().out
    assert (swept.root / "reports" / "sweep" / "plane.json").is_file()


@pytest.mark.slow
def test_a_sweep_on_tiny_albums_from_end_to_end(swept: Project) -> None:
    folder = run_plane(swept.root, load_plane(swept.root, "sweep", fast=True), jobs=2)
    assert (folder / "index.html").is_file()
    stages = swept.root / "work" / "points" / "stages"
    assert [path.name for path in stages.glob("federate-*")] == []


def test_every_shipped_sweep_resolves() -> None:
    folder: Path = CHECKOUT / "configs" / "experiments"
    names = [path.stem for path in folder.glob("*.yaml") if "strategies" in read_yaml(path)]
    planes = {"albums-plane", "mnist-writers-plane", "blog-plane"}
    assert {*planes, "papers-plane", "ratebeer-plane", "reference-plane"} | {
        "counter-ablation",
        "counter-ablation-albums",
        "counter-ablation-blog",
    } <= set(names)
    for name in names:
        for fast in (False, True):
            plane = load_plane(CHECKOUT, name, fast=fast)
            if plane.settings.audit is not None:  # by epsilon, not by strategy
                assert [analysis.name for analysis in plane.config.analyses] == ["membership"]
                continue
            if name in planes:
                assert sum(len(s.strengths) == 4 for s in plane.settings.strategies) >= 8
            assert any(s.name == "mm-aug" and 0.5 in s.strengths for s in plane.settings.strategies)
