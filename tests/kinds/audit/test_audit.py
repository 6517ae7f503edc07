"""``fedprint audit-dp``: a mechanism by its numbers, an experiment with its data, a sweep's places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from tiny_project import TINY, Project
from typer.testing import CliRunner

from fedprint.audit.run import Setting
from fedprint.cli.main import app
from fedprint.data.formats.files import write_json
from fedprint.defences.on_update import DpFedAvg
from fedprint.evaluation.rows import COLUMNS
from fedprint.federation.backends import make_backend
from fedprint.federation.cohorts import FederationPlan
from fedprint.kinds.audit import mechanism as auditing
from fedprint.kinds.audit import results, stage
from fedprint.kinds.audit.config import AuditSetting, audit_of, audited, delta_of, load_audit
from fedprint.kinds.audit.graph import AUDIT
from fedprint.kinds.audit.kind import AuditKind
from fedprint.kinds.audit.mechanism import mechanism_of
from fedprint.kinds.audit.results import as_values, audit_from, audit_row
from fedprint.kinds.laboratory import laboratory
from fedprint.kinds.plane.config import load_plane
from fedprint.kinds.plane.kind import PlaneKind, audit_jobs, audit_rows
from fedprint.kinds.requests import request_for
from fedprint.lab.graph import Job, Task
from fedprint.lab.runner import Done, Lab
from fedprint.types import FedprintError, Params

LINE = ["audit-dp", "--clients", "100", "--cohort", "25", "--rounds", "8", "--sigma", "2", "--delta", "1e-5"]
QUICK = [*LINE, "--canaries", "120", "--json"]
PRIVATE: dict[str, Any] = {
    **TINY,
    "federation": {**TINY["federation"], "rounds": 3, "fraction": 0.5, "sampling": "poisson", "central_epochs": 0},
    "defences": [{"name": "dp-fedavg", "clip": 0.1, "z": 1.0, "budget": {"delta": 1e-3}}],
}
SETTING = Setting(delta=1e-3, canaries=40)
ASKED = auditing.Options(clients=100, cohort=25, rounds=2, sigma=2.0, delta=1e-5, sampling=None)


def test_json_states_everything_and_the_bound_stays_below_the_promise() -> None:
    done = CliRunner().invoke(app, QUICK)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["holds"] and 0 <= found["bound"] <= found["accounted"]["value"]
    assert (found["rounds"], found["canaries"], found["confidence"]) == (8, 120, 0.95)
    assert found["q"] == [0.25, 0.25]
    assert found["accounted"] | {"value": 0} == {
        "value": 0, "delta": 1e-5, "sampling": "poisson", "adjacency": "add-remove", "accountant": "prv", "rounds": 8,
        "protects": "device",
        "not_covered": ["the choice of the settings"],
    }  # fmt: skip
    assert 0 < found["correct"] <= found["guesses"] <= 120


def test_too_few_canaries_would_be_another_mechanism() -> None:
    asked = auditing.Options(clients=1000, cohort=7, rounds=2, sigma=2.0, delta=1e-5, sampling=None)
    mechanism, _ = mechanism_of(asked)
    with pytest.raises(FedprintError, match=r"--canaries 100: a cohort of 1 samples at q = 0\.01, ") as stopped:
        auditing.audit_mechanism(mechanism, replace(SETTING, canaries=100))
    assert "--cohort 7 of --clients 1000 at q = 0.007; raise --canaries to 141" in str(stopped.value)
    found = auditing.audit_mechanism(mechanism, replace(SETTING, canaries=141))
    assert found.q == (1 / 141, 1 / 141) and abs(found.q[0] / 0.007 - 1) < 0.02
    shown = Console(width=150, record=True, file=StringIO())
    shown.print(results.table(found, "audit"))
    assert "0.007092" in shown.export_text()


def test_rates_of_a_growing_cohort_are_told_from_end_to_end() -> None:
    found = auditing.audit_mechanism(mechanism_of(ASKED)[0], replace(SETTING, canaries=40))
    shown = Console(width=150, record=True, file=StringIO())
    shown.print(results.table(replace(found, q=(0.25, 0.5)), "audit"))
    assert "0.25 to 0.5" in shown.export_text()


def test_what_would_be_ignored_is_refused(project: Project) -> None:
    project.write("private", PRIVATE)
    for words in (["--clients", "10"], ["--cohort", "3"], ["--rounds", "3"], ["--sigma", "1"], ["--sampling", "fixed"]):
        done = CliRunner().invoke(app, ["audit-dp", "private", *words])
        assert isinstance(done.exception, FedprintError)
        assert f"'private' has numbers of its own; leave out {words[0]}, or" in str(done.exception)
    for words in (["--fast"], ["--set", "federation.rounds=2"], ["--dry-run"], ["--renew"]):
        done = CliRunner().invoke(app, [*LINE, *words])
        assert isinstance(done.exception, FedprintError) and "name one, or leave them out" in str(done.exception)


def test_a_broken_mechanism_ends_with_an_error_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(self: DpFedAvg, mean: Params, cohort_size: int, rng: Any) -> Params:
        return mean

    monkeypatch.setattr(DpFedAvg, "on_server", silent)
    done = CliRunner().invoke(app, [word for word in QUICK if word != "--json"], env={"COLUMNS": "150"})
    assert done.exit_code == 1 and "BROKEN" in done.output and "epsilon, at least" in done.output


def test_what_is_missing_or_makes_no_sense_is_said_in_one_line() -> None:
    asked = auditing.Options(clients=10, cohort=None, rounds=3, sigma=None, delta=None, sampling="poisson")
    with pytest.raises(FedprintError, match="give --cohort, --sigma, --delta, or the name of an experiment"):
        mechanism_of(asked)
    whole = replace(asked, cohort=11, sigma=1.0, delta=1e-5)
    for changes, words in (
        ({}, "--cohort 11 of --clients 10; choose 1 to 10"),
        ({"cohort": 3, "bands": 4}, "--bands 4: a cohort of 3 comes from one of 4 groups of --clients 10"),
        ({"cohort": 2, "bands": 4, "sampling": "fixed"}, "--bands 4: correlated noise needs --sampling poisson"),
        ({"cohort": 2, "sigma": 0.0}, "--sigma 0.0 is no noise"),
    ):
        with pytest.raises(FedprintError, match=words):
            auditing.audit_mechanism(mechanism_of(replace(whole, **changes))[0], SETTING)  # type: ignore[arg-type]
    with pytest.raises(FedprintError, match=r"--confidence 1\.0 is no probability"):
        auditing.audit_mechanism(mechanism_of(replace(whole, cohort=2))[0], replace(SETTING, confidence=1.0))


def task_of(project: Project, name: str, setting: Setting = SETTING) -> Task:
    """Return an audit's task in this process, its users prepared."""
    config = audited(project.task(name).config, AuditSetting(delta=setting.delta, canaries=setting.canaries))
    folder = project.root / "audits" / name
    places = {output: folder / output for each in AUDIT.stages for output in each.outputs}
    task = Task(config=config, prior="random", seed=0, item="x", paths=places, scratch=folder, key="test")
    for each in AUDIT.stages[:2]:
        each.function()(task)
    return task


def test_an_experiment_trains_with_canaries_among_its_devices_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("private", PRIVATE)
    asked = audit_of(project.root, "private", {"canaries": 40}, name="audit-private")
    config, kind = load_audit(asked), AuditKind()
    assert asked.name == config.name == "audit-private"
    with laboratory(project.root, kind, config, jobs=1) as lab:
        first = kind.carry_out(config, lab, project.root / "reports" / config.name)
        again = kind.carry_out(config, lab, project.root / "reports" / "again")
    assert not first.done[0].known and again.done[0].known, "from the cache"
    (told,) = json.loads((project.root / "reports" / "audit-private" / "summary.json").read_text())["audits"]
    assert told["holds"] and (told["canaries"], told["rounds"]) == (40, 3)
    assert first.metrics == {
        "epsilon_lower": told["bound"],
        "epsilon_lower_tight": told["tight"],
        "epsilon_accounted": told["accounted"]["value"],
    }
    made = audit_from({name: value for name, value in told.items() if name not in ("holds", "verdict")})
    found = audit_row(config.config, "random", 0, made)
    assert set(COLUMNS) <= set(found)
    assert (found["metric"], found["view"], found["defence"], found["delta"]) == (
        "epsilon_lower", "central", "dp-fedavg", 1e-3,
    )  # fmt: skip
    assert found["accounted"] == made.accounted.value


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({}, "audit-private"),
        ({"given": {"canaries": 1000, "confidence": 0.95, "seeds": (0,), "delta": None}}, "audit-private"),
        ({"given": {"canaries": 200}}, "audit-private-canaries=200"),
        ({"given": {"confidence": 0.9, "seeds": (3,)}}, r"audit-private-confidence=0.9-seeds=3-[0-9a-f]{8}"),
        ({"given": {"delta": 1e-4}, "assignments": ["prior=iid"]}, "audit-private-prior=iid-delta=0.0001"),
        ({"fast": True, "given": {"canaries": 200}}, "audit-private-fast-canaries=200"),
        ({"given": {"canaries": 200}, "name": "mine"}, "mine"),
    ],
)
def test_an_audit_is_called_after_what_differs(project: Project, asked: dict[str, Any], name: str) -> None:
    project.write("private", PRIVATE)
    found = audit_of(project.root, "private", **asked)
    assert re.fullmatch(name, found.name)
    for option in ("canaries", "confidence", "delta"):
        if (value := (asked.get("given") or {}).get(option)) is not None:
            assert getattr(load_audit(found).config.audit, option) == value


def test_an_audit_never_takes_the_name_of_an_experiment(project: Project) -> None:
    project.write("private", PRIVATE)
    project.write("audit-private", TINY)
    for name in ("private", None):
        with pytest.raises(FedprintError, match=r"is the report of configs/experiments/.*private\.yaml as it is; give"):
            audit_of(project.root, "private", name=name)


OWN = {"report": {"title": "Own"}, "experiment": "private", "canaries": 40, "seeds": [0, 1]}


def test_the_file_of_an_audit_is_audited_as_it_says(project: Project) -> None:
    project.write("private", PRIVATE)
    project.write("own", OWN)
    assert audit_of(project.root, "own") == request_for(project.root, "own")
    changed = audit_of(project.root, "own", {"canaries": 1000})
    assert (changed.name, load_audit(changed).config.audit.canaries) == ("own-canaries=1000", 1000)
    done = CliRunner().invoke(app, ["audit-dp", "own", "--dry-run"])
    assert (
        done.exit_code == 0 and "own: dry run, nothing written" in done.output and not (project.root / "work").exists()
    )


def found_by(holds: Mapping[int, bool], monkeypatch: pytest.MonkeyPatch, project: Project) -> None:
    """Let audits find at each seed what is said, without any training."""
    made = auditing.audit_mechanism(mechanism_of(ASKED)[0], replace(SETTING, canaries=40))

    def ended(self: Lab, jobs: Sequence[Job], *, title: str, want: Sequence[str] | None = None) -> list[Done]:
        for job in jobs:
            bound = 0.0 if holds[job.seed] else 1e6
            write_json(project.root / "audit" / str(job.seed) / "audit.json", as_values(replace(made, bound=bound)))
        return [Done(job=j, outputs={"audit": project.root / "audit" / str(j.seed)}, keys={}, known=True) for j in jobs]

    monkeypatch.setattr(Lab, "run", ended)


@pytest.mark.parametrize("holds", [{0: True, 1: True}, {0: True, 1: False}], ids=["holds", "broken"])
def test_a_promise_that_does_not_hold_ends_run_and_audit_with_1(
    project: Project, monkeypatch: pytest.MonkeyPatch, holds: dict[int, bool]
) -> None:
    project.write("private", PRIVATE)
    project.write("own", OWN)
    found_by(holds, monkeypatch, project)
    done = CliRunner().invoke(app, ["audit-dp", "own", "--json"])
    assert done.exit_code == (0 if all(holds.values()) else 1)
    assert [one["holds"] for one in json.loads(done.stdout)] == list(holds.values())
    ran = CliRunner().invoke(app, ["run", "own"], env={"COLUMNS": "150"})
    assert f"Report: {project.root / 'reports' / 'own' / 'index.html'}\n" in ran.output
    if all(holds.values()):
        assert ran.exit_code == 0
    else:
        assert isinstance(ran.exception, FedprintError) and ran.exception.exit_code == 1
        assert "1 of 2 jobs of 'own' failed: seed 1: BROKEN" in str(ran.exception)


def test_canaries_train_on_no_data_and_on_the_executor_of_the_experiment(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("private", {**PRIVATE, "federation": {**PRIVATE["federation"], "backend": "vectorised"}})
    trained: list[str] = []

    @contextmanager
    def spy(name: str, model: Any, devices: Sequence[str]) -> Iterator[Any]:
        assert (name, tuple(devices)) == ("vectorised", ())
        backend = make_backend(name, model)
        run = backend.run
        monkeypatch.setattr(
            type(backend), "run", lambda self, jobs, *a: (trained.extend(j.device_id for j in jobs), run(jobs, *a))[1]
        )
        yield backend

    monkeypatch.setattr(stage, "open_backend", spy)
    assert stage.audit_task(task_of(project, "private")).canaries == 40
    assert trained and not [name for name in trained if "canary" in name]


def test_a_bug_planted_in_an_experiment_with_data_is_caught(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 devices with data among 200 canaries; the same audit stands where nothing is broken."""
    project.write("private", {**PRIVATE, "defences": [{**PRIVATE["defences"][0], "z": 4.0, "budget": {"delta": 1e-5}}]})
    task = task_of(project, "private", Setting(delta=1e-5, canaries=200))
    plans: list[FederationPlan] = []
    original = stage.audit
    monkeypatch.setattr(stage, "audit", lambda **a: (plans.append(a["plan"]), original(**a))[1])
    honest = stage.audit_task(task)
    assert honest.holds and honest.accounted.value < 2
    monkeypatch.setattr(DpFedAvg, "on_server", lambda self, mean, cohort_size, rng: mean)
    found = stage.audit_task(task)
    assert found.accounted == honest.accounted and not found.holds, (found.bound, found.accounted.value)
    assert plans[0].condition.startswith("audit-"), "or its noise would be that of the run that is released"


def test_an_infinite_epsilon_survives_json(project: Project) -> None:
    found = auditing.audit_mechanism(mechanism_of(ASKED)[0], replace(SETTING, canaries=40))
    endless = replace(found, accounted=replace(found.accounted, value=float("inf")))
    for one in (found, endless):
        assert audit_from(json.loads(json.dumps(as_values(one), allow_nan=False))) == one


def test_only_experiments_that_promise_something_are_audited(project: Project) -> None:
    project.write("tiny", TINY)
    with pytest.raises(FedprintError, match="'tiny' has no dp-fedavg"):
        load_audit(audit_of(project.root, "tiny"))
    project.write("half", {**PRIVATE, "threat": {"defended": "anonymous"}})
    with pytest.raises(FedprintError, match="devices of one role are not clipped"):
        load_audit(audit_of(project.root, "half"))
    project.write("private", {**PRIVATE, "defences": [{"name": "dp-fedavg", "z": 1.0}]})
    with pytest.raises(FedprintError, match=r"has no budget\.delta; give --delta"):
        load_audit(audit_of(project.root, "private"))
    assert load_audit(audit_of(project.root, "private", {"delta": 1e-4})).config.audit.delta == 1e-4
    assert delta_of(1e-4, project.task("private").config) == 1e-4
    project.write("both", {**PRIVATE, "defences": [{"name": "sign"}, *PRIVATE["defences"]]})
    with pytest.raises(FedprintError, match="'both' also has sign, which canaries do not go through; audit it with dp"):
        load_audit(audit_of(project.root, "both"))


def test_a_delta_of_0_is_refused_and_not_taken_for_none(project: Project) -> None:
    project.write("private", PRIVATE)
    for words, said in ((["private"], "delta: Input should be greater than 0"), (LINE[1:-2], "--delta 0.0 is no prob")):
        done = CliRunner().invoke(app, ["audit-dp", *words, "--delta", "0"])
        assert isinstance(done.exception, FedprintError) and said in str(done.exception)


def test_a_model_on_fixed_features_is_audited_on_them(project: Project) -> None:
    project.write("features", {**PRIVATE, "model": {"name": "oriented-gradients"}})
    found = stage.audit_task(task_of(project, "features"))
    assert found.holds and found.rounds == 3


def test_private_places_of_a_plane_are_audited_at_every_seed(project: Project) -> None:
    project.write("tiny", TINY)
    dp = {"name": "dp-fedavg", "clip": 0.5, "z": "$strength", "budget": {"delta": 1e-3}}
    sweep = {
        "report": {"title": "Sweep"}, "experiment": "tiny", "seeds": [0, 1], "audit": {"canaries": 20},
        "analyses": [{"name": "membership", "rounds": 3}], "with": {"federation": {"absent": 0.5}},
        "strategies": [{"name": "dp-fedavg", "defences": [dp], "strengths": [1.0, 0]}],
    }  # fmt: skip
    project.write("sweep", sweep)
    plane = load_plane(request_for(project.root, "sweep"))
    assert {a.name for place in plane.points for a in place.config.analyses} == {"membership"}
    jobs = audit_jobs(plane)
    assert [(job.label, job.seed) for job in jobs] == [
        ("dp-fedavg 1 audit seed 0", 0), ("dp-fedavg 1 audit seed 1", 1),
    ], "clipping alone promises nothing"  # fmt: skip
    assert {(job.config.audit.canaries, job.config.audit.delta) for job in jobs} == {(20, 1e-3)}  # type: ignore[attr-defined]
    heads = [PlaneKind().head(plane, job) for job in jobs]
    assert [head.name for head in heads] == ["sweep dp-fedavg 1 audit seed 0", "sweep dp-fedavg 1 audit seed 1"]
    made = auditing.audit_mechanism(mechanism_of(ASKED)[0], replace(SETTING, canaries=40))
    write_json(project.root / "audit" / "audit.json", as_values(made))
    done = [Done(job=job, outputs={"audit": project.root / "audit"}, keys={}, known=False) for job in jobs]
    rows = audit_rows(plane, done)
    assert list(rows) == ["dp-fedavg 1"] and [row["seed"] for row in rows["dp-fedavg 1"]] == [0, 1]
    assert audit_rows(plane, [done[0], FedprintError("full")])["dp-fedavg 1"] == rows["dp-fedavg 1"][:1]
    project.write("sweep", {name: value for name, value in sweep.items() if name != "audit"})
    assert audit_jobs(load_plane(request_for(project.root, "sweep"))) == []
    both = {"name": "signs-too", "defences": [{"name": "sign"}, dp], "strengths": [1.0]}
    project.write("sweep", {**sweep, "strategies": [both]})
    with pytest.raises(FedprintError, match="also has sign, which canaries do not go through"):
        load_plane(request_for(project.root, "sweep"))  # and not after hours of training
