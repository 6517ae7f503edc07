"""Suites: members resolved from several files, run one by one, reported together."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny_project import CHECKOUT, TINY, Project

from fedprint.kinds.suite import suite as suites
from fedprint.cli.main import main
from fedprint.kinds.federation.config import load_experiment
from fedprint.kinds.config_files import read_yaml
from fedprint.kinds.federation.stages.paths import Job
from fedprint.kinds.suite.suite import Outcome, load_suite, progress_line, run_suite
from fedprint.kinds.workspace import Request, open_workspace
from fedprint.types import FedprintError

PAIR: Mapping[str, Any] = {
    "report": {"title": "Two albums"},
    "with": {"federation": {"rounds": 6}, "fast": {"federation": {"rounds": 2}}},
    "members": [
        {"experiment": "tiny"},
        {"experiment": "tiny", "name": "plain", "with": {"data": {"bias": 0}}, "plus": {"attacks": [{"name": "svm"}]}},
    ],
}


@pytest.fixture
def pair(project: Project) -> Project:
    """A project with the experiment ``tiny`` and the suite ``pair`` of two of its variants."""
    project.write("tiny", TINY)
    project.write("pair", PAIR)
    return project


def _fedprint(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["fedprint", *words])
    monkeypatch.setenv("COLUMNS", "160")
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


# Configuration --------------------------------------------------------------------------------------------------------


def test_members_merge_their_file_the_suites_changes_and_their_own(pair: Project) -> None:
    one, two = load_suite(pair.root, "pair").members
    assert [one.label, two.label] == ["tiny", "plain"]
    assert [one.config.name, two.config.name] == ["pair.tiny", "pair.plain"]
    assert one.config.federation.rounds == two.config.federation.rounds == 6
    assert one.config.federation.lr == TINY["federation"]["lr"], "the rest of a mapping stays"
    assert [one.config.data.bias, two.config.data.bias] == [1.0, 0.0]  # type: ignore[union-attr]
    assert [a.name for a in two.config.attacks] == [*(a.name for a in one.config.attacks), "svm"]
    assert (two.words, two.request(None).report) == ((), "pair/plain")


def test_fast_sections_of_the_suite_reach_the_members(pair: Project) -> None:
    member = load_suite(pair.root, "pair", fast=True).members[0]
    assert (member.config.federation.rounds, member.config.fast, member.words) == (2, True, ("--fast",))


def test_a_list_that_the_fast_section_replaces_gets_what_a_member_adds(pair: Project) -> None:
    pair.write("pair", {**PAIR, "with": {"fast": {"attacks": [{"name": "chance"}]}}})
    plain = load_suite(pair.root, "pair", fast=True).members[1]
    assert [attack.name for attack in plain.config.attacks] == ["chance", "svm"]


def test_assignments_change_all_members_or_the_one_they_name(pair: Project) -> None:
    words = ["federation.rounds=3", "plain.data.users=9"]
    one, two = load_suite(pair.root, "pair", assignments=words).members
    assert [one.config.federation.rounds, two.config.federation.rounds] == [3, 3]
    assert [one.config.data.users, two.config.data.users] == [8, 9]  # type: ignore[union-attr]
    assert two.words == ("--set", "federation.rounds=3", "--set", "data.users=9")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"members": [{"experiment": "nosuch"}]}, "unknown experiment 'nosuch'"),
        ({"members": [{"experiment": "pair"}]}, "member 'pair' is itself a suite"),
        ({"members": []}, "members: .*at least 1"),
        (
            {"members": [{"experiment": "tiny"}, {"experiment": "tiny"}]},
            "names must differ.*give the second one a name",
        ),
        ({"members": [{"experiment": "tiny", "with": {"federation": {"round": 3}}}]}, "member tiny: federation.round"),
        ({"members": [{"experiment": "tiny", "withh": {}}]}, "withh.*allowed keys: experiment, name, with, plus"),
        ({"members": [{"experiment": "tiny", "name": "a/b"}]}, "members.0.name"),
        ({"seeds": [1]}, "seeds.*allowed keys: report, with, members"),
    ],
)
def test_a_bad_suite_is_refused_in_one_line(pair: Project, changed: dict[str, Any], words: str) -> None:
    pair.write("bad", {**PAIR, **changed})
    with pytest.raises(FedprintError, match=words) as caught:
        load_suite(pair.root, "bad")
    assert "\n" not in str(caught.value)


def test_a_bad_override_names_the_member(pair: Project) -> None:
    with pytest.raises(FedprintError, match=r"pair: member tiny: federation.rounds.*'many'"):
        load_suite(pair.root, "pair", assignments=["tiny.federation.rounds=many"])


def test_a_suite_is_no_experiment(pair: Project) -> None:
    with pytest.raises(FedprintError, match="'pair' is a suite"):
        load_experiment(pair.root, "pair")


def test_every_shipped_suite_resolves_with_and_without_fast() -> None:
    folder = CHECKOUT / "configs" / "experiments"
    names = [path.stem for path in folder.glob("*.yaml") if "members" in read_yaml(path)]
    assert "paper-tables" in names
    for name in names:
        for fast in (False, True):
            assert load_suite(CHECKOUT, name, fast=fast).members


# Workspaces -----------------------------------------------------------------------------------------------------------


def test_a_members_workspace_has_its_own_file_and_leaves_the_projects_alone(pair: Project) -> None:
    (pair.root / ".dvc").mkdir()
    for name in ("src", "params.yaml"):
        (pair.root / name).symlink_to(CHECKOUT / name)
    before = sorted((pair.root / "configs" / "experiments").iterdir())
    member = load_suite(pair.root, "pair", assignments=["plain.data.users=9"]).members[1]
    workspace = open_workspace(pair.root, member.request(None))
    assert workspace.folder.name == "pair.plain"
    resolved = load_experiment(workspace.folder, "pair.plain", assignments=["data.users=9"])
    assert resolved == member.config
    assert sorted((pair.root / "configs" / "experiments").iterdir()) == before


# Running --------------------------------------------------------------------------------------------------------------


def test_progress_says_which_member_and_what_is_left() -> None:
    assert progress_line(0, 3, "a", 1.0) == "member 1 of 3: a  (1 s elapsed, time left unknown)"
    assert progress_line(2, 3, "c", 240.0) == "member 3 of 3: c  (4.0 min elapsed, about 2.0 min left)"


def _fake_run(failing: str) -> Any:
    """Return a stand-in for the pipeline that publishes a real report's files, or fails."""

    def run(root: Path, request: Request, log: Path | None = None) -> Path:
        if log is not None:
            log.write_text("Running stage 'attack@random-0':\n")
        if request.experiment.endswith(failing):
            raise FedprintError("the disk is full: free some")
        target = root / "reports" / str(request.report)
        shutil.copytree(root / "ready", target, dirs_exist_ok=True)
        return target

    return run


@pytest.fixture
def ready(tiny: Job, pair: Project) -> Path:
    """A finished report, of which every fake run publishes a copy."""
    from fedprint.reports.page import write_report

    out = pair.root / "ready"
    settings = {"experiment": "pair.tiny", "title": "Tiny", "config_text": "a: 1\n"}
    write_report(evaluations=[tiny.paths.evaluation], out=out, **settings)
    return out


@pytest.mark.parametrize(("jobs", "said"), [("1", "member 2 of 2: plain"), ("2", "2 of 2 members")])
def test_a_failing_member_loses_nothing_of_the_others(
    pair: Project,
    ready: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    jobs: str,
    said: str,
) -> None:
    monkeypatch.setattr(suites, "run_experiment", _fake_run("plain"))
    assert _fedprint(monkeypatch, "run", "pair", "--jobs", jobs) == 1
    shown = capsys.readouterr()
    assert said in shown.out
    assert "error: the disk is full: free some" in shown.err
    assert "1 of 2 members of 'pair' failed" in shown.err.splitlines()[-1]
    folder = pair.root / "reports" / "pair"
    page = (folder / "index.html").read_text()
    assert 'href="tiny/index.html"' in page
    assert "plain failed" in page
    rows = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    assert {(row["experiment"], row["member"]) for row in rows} == {("pair", "tiny")}
    assert len(rows) == len((ready / "measurements.jsonl").read_text().splitlines())


def test_the_suite_is_logged_and_can_be_summed_up_but_not_compared_as_one(
    pair: Project, ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedprint.lab.database import create_database

    monkeypatch.setattr(suites, "run_experiment", _fake_run("nothing"))
    run_suite(pair.root, load_suite(pair.root, "pair"), None)
    client = create_database(pair.root)
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert {"index.html", "measurements.csv"} <= {item.path for item in client.list_artifacts(run.info.run_id)}
    assert _fedprint(monkeypatch, "summary", "pair") == 0
    assert "ridge" in capsys.readouterr().out
    assert _fedprint(monkeypatch, "compare", "pair", "pair/tiny") == 2
    assert "compare its members: pair/tiny, pair/plain" in capsys.readouterr().err
    assert _fedprint(monkeypatch, "compare", "pair/plain", "pair/tiny") == 0


def test_without_any_report_nothing_is_published(pair: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "run_experiment", _fake_run(""))
    outcomes: list[Outcome] = run_suite(pair.root, load_suite(pair.root, "pair"), None)
    assert [outcome.report for outcome in outcomes] == [None, None]
    assert not (pair.root / "reports").exists()


def test_dry_run_sums_the_members(
    pair: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _fedprint(monkeypatch, "run", "pair", "--dry-run") == 0
    lines = {line.split()[1]: line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert int(lines["all"][3]) == int(lines["tiny"][3]) + int(lines["plain"][3]) == 2
    assert not (pair.root / "work").exists()


@pytest.mark.slow
def test_two_members_end_to_end_through_dvc_and_a_second_run_that_does_nothing(
    pair: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (pair.root / ".dvc").mkdir()
    shutil.copy(CHECKOUT / ".dvc" / "config", pair.root / ".dvc" / "config")
    (pair.root / ".dvc" / "config.local").write_text("[core]\nno_scm = true\n")
    for name in ("src", "params.yaml", ".dvcignore"):
        (pair.root / name).symlink_to(CHECKOUT / name)
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    assert _fedprint(monkeypatch, "run", "pair", "--fast") == 0
    capfd.readouterr()
    rows = [json.loads(line) for line in (pair.root / "reports/pair/measurements.jsonl").read_text().splitlines()]
    assert {(row["member"], row["experiment"]) for row in rows} == {("tiny", "pair"), ("plain", "pair")}
    assert (pair.root / "reports" / "pair" / "plain" / "index.html").is_file()
    assert _fedprint(monkeypatch, "run", "pair", "--fast") == 0
    assert "Running stage" not in capfd.readouterr().out
