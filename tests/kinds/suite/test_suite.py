"""Suites: members resolved from several files, run side by side, reported together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_project import CHECKOUT, TINY, Project

from fedprint.kinds import driver
from fedprint.kinds.config_files import read_yaml
from fedprint.kinds.registry import kind_of
from fedprint.kinds.requests import request_for
from fedprint.kinds.suite.config import Suite
from fedprint.kinds.suite.kind import SuiteKind
from fedprint.lab.graph import Job, Task
from fedprint.lab.runner import Done, JobFailed, Lab
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


def suite_of(root: Path, name: str = "pair", **asked: Any) -> Suite:
    return SuiteKind(kind_of).load(request_for(root, name, **asked))


# Configuration --------------------------------------------------------------------------------------------------------


def test_members_merge_their_file_the_suites_changes_and_their_own(pair: Project) -> None:
    one, two = suite_of(pair.root).members
    assert [one.label, two.label] == ["tiny", "plain"]
    assert [one.config.name, two.config.name] == ["pair.tiny", "pair.plain"]
    assert {one.kind.name, two.kind.name} == {"federation"}
    assert one.config.federation.rounds == two.config.federation.rounds == 6
    assert one.config.federation.lr == TINY["federation"]["lr"], "the rest of a mapping stays"
    assert [one.config.data.bias, two.config.data.bias] == [1.0, 0.0]  # type: ignore[union-attr]
    assert [a.name for a in two.config.attacks] == [*(a.name for a in one.config.attacks), "svm"]


def test_fast_sections_of_the_suite_reach_the_members(pair: Project) -> None:
    member = suite_of(pair.root, fast=True).members[0]
    assert (member.config.federation.rounds, member.config.fast) == (2, True)


def test_a_list_that_the_fast_section_replaces_gets_what_a_member_adds(pair: Project) -> None:
    pair.write("pair", {**PAIR, "with": {"fast": {"attacks": [{"name": "chance"}]}}})
    plain = suite_of(pair.root, fast=True).members[1]
    assert [attack.name for attack in plain.config.attacks] == ["chance", "svm"]


def test_assignments_change_all_members_or_the_one_they_name(pair: Project) -> None:
    words = ["federation.rounds=3", "plain.data.users=9"]
    one, two = suite_of(pair.root, assignments=words).members
    assert [one.config.federation.rounds, two.config.federation.rounds] == [3, 3]
    assert [one.config.data.users, two.config.data.users] == [8, 9]  # type: ignore[union-attr]


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
        suite_of(pair.root, "bad")
    assert "\n" not in str(caught.value)


def test_a_plane_is_refused_before_anything_runs(pair: Project) -> None:
    pair.write("swept", {"strategies": []})
    pair.write("bad", {**PAIR, "members": [{"experiment": "swept"}]})
    with pytest.raises(FedprintError, match=r"member 'swept' is of kind plane.*run it by itself: `fedprint run swept`"):
        suite_of(pair.root, "bad")


def test_a_path_in_a_suite_counts_from_the_suites_folder(
    pair: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mine")
    for name, values in (
        ("base", {**TINY, "seeds": [3]}),
        ("both", {**PAIR, "members": [{"experiment": "base.yaml"}]}),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(dict(values)))
    pair.write("base", TINY)
    (pair.root / "base.yaml").write_text(yaml.safe_dump({**TINY, "seeds": [4]}))
    (member,) = suite_of(pair.root, str(folder / "both.yaml")).members
    assert (member.label, member.config.seeds) == ("base", (3,))


def test_a_bad_override_names_the_member(pair: Project) -> None:
    with pytest.raises(
        FedprintError, match=r"pair: member tiny: --set federation.rounds=many: federation.rounds.*'many'"
    ):
        suite_of(pair.root, assignments=["tiny.federation.rounds=many"])


def test_every_shipped_suite_resolves_with_and_without_fast() -> None:
    folder = CHECKOUT / "configs" / "experiments"
    names = [path.stem for path in folder.glob("*.yaml") if "members" in read_yaml(path)]
    assert "paper-tables" in names
    for name in names:
        for fast in (False, True):
            assert suite_of(CHECKOUT, name, fast=fast).members


# Running --------------------------------------------------------------------------------------------------------------


class ReadyLab(Lab):
    """Answers every job with a finished evaluation, or fails those whose label holds ``failing``."""

    def __init__(self, root: Path, ready: Task, failing: str = "nothing") -> None:
        super().__init__(root=root, pool=None)  # type: ignore[arg-type]
        self._ready, self._failing = ready, failing
        self.asked: list[list[str]] = []

    def run(self, jobs: Sequence[Job], *, title: str) -> list[Done | FedprintError]:
        self.asked.append([job.label for job in jobs])
        return [self._ended(job) for job in jobs]

    def _ended(self, job: Job) -> Done | FedprintError:
        if self._failing in job.label:
            return JobFailed("the disk is full: free some", stage="federate", exit_code=2, reason="full")
        return Done(job=job, outputs={"evaluation": self._ready.at("evaluation")}, keys={}, known=False)


def test_jobs_of_all_members_run_side_by_side_and_a_failing_member_stops_no_other(pair: Project, tiny: Task) -> None:
    folder, lab = pair.root / "reports" / "pair", ReadyLab(pair.root, tiny, failing="plain")
    findings = SuiteKind(kind_of).carry_out(suite_of(pair.root), lab, folder)
    assert lab.asked == [["tiny: random-0", "plain: random-0"]], "in one run, and none of them twice"
    assert findings.failures == {"plain": "random-0: the disk is full: free some"}
    assert [done.job.label for done in findings.done] == ["tiny: random-0"]
    page = (folder / "index.html").read_text()
    assert 'href="tiny/index.html"' in page and (folder / "tiny" / "index.html").is_file()
    assert "plain failed" in page and not (folder / "plain").exists()
    rows = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    assert {(row["experiment"], row["member"]) for row in rows} == {("pair", "tiny")}
    assert {name.partition("/")[0] for name in findings.metrics} == {"tiny"}


def test_without_any_member_there_is_no_report(pair: Project, tiny: Task) -> None:
    with pytest.raises(FedprintError, match=r"tiny: random-0: the disk is full.*; plain: random-0: the disk"):
        lab = ReadyLab(pair.root, tiny, failing="")
        SuiteKind(kind_of).carry_out(suite_of(pair.root), lab, pair.root / "reports" / "pair")
    assert not list((pair.root / "reports").iterdir())


def test_a_members_run_is_tracked_as_its_kind_does_and_grouped_by_the_suite(pair: Project) -> None:
    suite, kind = suite_of(pair.root), SuiteKind(kind_of)
    heads = [kind.head(suite, job) for job in kind.jobs(suite)]
    assert [head.name for head in heads] == ["pair.tiny random seed 0", "pair.plain random seed 0"]
    assert {head.group for head in heads} == {"pair"} and heads[1].params["data.bias"] == 0


def test_a_suite_costs_what_its_members_do(pair: Project) -> None:
    suite = suite_of(pair.root)
    costs = SuiteKind(kind_of).costs(suite, "cpu")
    assert costs.jobs == 2 and costs.seconds > 0 and list(costs.details) == ["tiny", "plain"]


@pytest.mark.slow
def test_two_members_end_to_end_and_a_second_run_that_computes_nothing(
    pair: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = driver.run(request_for(pair.root, "pair", fast=True), jobs=2)
    rows = (folder / "measurements.jsonl").read_bytes()
    members = {json.loads(line)["member"] for line in rows.splitlines()}
    assert folder.name == "pair-fast" and members == {"tiny", "plain"}
    assert (folder / "plain" / "index.html").is_file()
    before = {path: path.stat().st_mtime_ns for path in (pair.root / "work" / "cache").glob("*/*")}
    driver.run(request_for(pair.root, "pair", fast=True), jobs=2)
    assert {path: path.stat().st_mtime_ns for path in (pair.root / "work" / "cache").glob("*/*")} == before
    assert (folder / "measurements.jsonl").read_bytes() == rows
