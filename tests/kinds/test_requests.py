"""What a command is about: by name or by file, with a name of its own where something differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_project import CHECKOUT, TINY, Project

from fedprint.errors import FedprintError
from fedprint.kinds.requests import file_of, report_name, request_for, variant
from fedprint.lab.project import NAME


def test_a_name_and_a_path_mean_the_same_file() -> None:
    named = request_for(CHECKOUT, "quickstart")
    assert named == request_for(CHECKOUT, str(CHECKOUT / "configs" / "experiments" / "quickstart.yaml"))
    assert (named.name, named.path.name) == ("quickstart", "quickstart.yaml")


def test_a_study_is_found_by_name_and_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    by_path = request_for(CHECKOUT, "configs/studies/albums.yaml", folders=("studies",))
    assert by_path == request_for(CHECKOUT, "albums", folders=("studies",))
    assert by_path.name == "study-albums", "an experiment may have the study's name"


def test_a_file_may_lie_outside_the_project(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("elsewhere") / "mine.yaml"
    path.write_text(yaml.safe_dump(dict(TINY)))
    found = request_for(project.root, str(path))
    assert (found.name, found.path, found.root) == ("mine", path, project.root)
    assert found.values["report"] == TINY["report"]


def test_a_file_may_be_like_another(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("{with: {data: {users: 9, skip: 1}}, seeds: [0, 1], accelerator: cpu}")
    (tmp_path / "mine.yaml").write_text("{like: plain, with: {data: {skip: 2}}, seeds: [5]}")
    (tmp_path / "third.yaml").write_text("{like: mine}")
    (tmp_path / "lost.yaml").write_text("{like: nothing}")
    found = request_for(CHECKOUT, str(tmp_path / "mine.yaml"))
    assert found.values == {"with": {"data": {"users": 9, "skip": 2}}, "seeds": [5]}
    assert found.hardware.accelerator == "cpu"
    with pytest.raises(FedprintError, match=r"third.yaml: like: mine: that file is like another itself"):
        request_for(CHECKOUT, str(tmp_path / "third.yaml"))
    with pytest.raises(FedprintError, match=r"lost.yaml: like: nothing: there is no .*nothing.yaml"):
        request_for(CHECKOUT, str(tmp_path / "lost.yaml"))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "quickstart"),
        ({"fast": True}, "quickstart-fast"),
        ({"assignments": ["federation.rounds=5"]}, "quickstart-federation.rounds=5"),
        ({"fast": True, "assignments": ["seeds=3", "a.b=x"]}, "quickstart-fast-seeds=3-a.b=x"),
        ({"strategies": ["mm-aug"]}, "quickstart-mm-aug"),
        ({"name": "quickstart"}, "quickstart"),
        ({"name": "own", "fast": True}, "own"),
    ],
)
def test_a_variant_has_a_name_of_what_differs(changes: dict[str, object], name: str) -> None:
    assert request_for(CHECKOUT, "quickstart", **changes).name == name  # type: ignore[arg-type]


DIFFERENT: tuple[tuple[list[str], bool, list[str]], ...] = (
    ([], False, []),
    ([], True, []),
    ([], False, ["data.users=20"]),
    ([], False, ["split.users=20"]),
    ([], False, ["strategies.0.strengths=[1]"]),
    ([], False, ["strategies.1.strengths=[1]"]),
    ([], False, ["strategies.1.strengths=1"]),
    ([], False, ["seeds=[1, 2]"]),
    ([], False, ["seeds=1_2"]),
    ([], False, ["a=b-c", "d=1"]),
    ([], False, ["a=b", "c-d=1"]),
    ([], False, ["a=b-c-d=1"]),
    (["mm", "aug"], False, []),
    (["mm-aug"], False, []),
    (["x", "y"], False, ["a=1"]),
    (["x"], False, ["y-a=1"]),
    ([], False, ["data={name: folder, path: /a}"]),
    ([], False, ["data={name: folder, path: /b}"]),
    ([], True, ["data={name: folder, path: /b}"]),
    ([], False, [f"data={'long' * 30}1"]),
    ([], False, [f"data={'long' * 30}2"]),
)


def test_no_two_variants_have_one_name() -> None:
    names = [variant("plane", strategies=s, fast=fast, assignments=assigned) for s, fast, assigned in DIFFERENT]
    assert len(set(names)) == len(names), sorted(names)
    assert all(name.startswith("plane") and len(name) < 80 and NAME.fullmatch(name) for name in names)
    assert any(name.startswith("plane-strategies.0.strengths=1-") for name in names), "readable, and told apart"


# Names that are taken -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [{"fast": True}, {"assignments": ["federation.rounds=5"]}, {"what": "mnist-writers"}, {"what": "own.yaml"}],
    ids=str,
)
def test_the_name_of_a_file_of_the_project_is_that_of_the_file_as_it_is(
    project: Project, asked: dict[str, Any]
) -> None:
    (project.root / "own.yaml").write_text(yaml.safe_dump(dict(TINY)))
    with pytest.raises(FedprintError, match=r"'quickstart' is the report of .*quickstart\.yaml as it is; give another"):
        request_for(project.root, **{"what": "quickstart", "name": "quickstart", **asked})


def test_a_variant_may_not_be_called_as_another_file(project: Project) -> None:
    project.write("tiny", TINY)
    project.write("tiny-fast", TINY)
    with pytest.raises(FedprintError, match=r"'tiny-fast' is the report of configs/experiments/tiny-fast\.yaml"):
        request_for(project.root, "tiny", fast=True)


@pytest.mark.parametrize("changes", [{}, {"fast": True}, {"assignments": ["seeds=1"]}], ids=str)
@pytest.mark.parametrize("stem", ["quickstart", "study-albums"])
def test_a_file_from_elsewhere_that_is_called_as_one_of_the_project_needs_a_name(
    project: Project, tmp_path_factory: pytest.TempPathFactory, stem: str, changes: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("elsewhere") / f"{stem}.yaml"
    path.write_text(yaml.safe_dump(dict(TINY)))
    with pytest.raises(FedprintError, match=f"'{stem}' is the report of configs/.*; give another --name") as refused:
        request_for(project.root, str(path), **changes)
    assert "\n" not in str(refused.value)
    assert request_for(project.root, str(path), name="own", **changes).name == "own"


# Names and paths ------------------------------------------------------------------------------------------------------


def test_only_studies_of_the_project_are_called_studies(tmp_path: Path) -> None:
    path = tmp_path / "studies" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(dict(TINY)))
    assert request_for(CHECKOUT, str(path)).name == "mine"


@pytest.mark.parametrize("place", ["reports", "experiments"])
def test_a_report_is_meant_by_its_name_its_folder_and_its_file(
    project: Project, tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    root = project.root
    (root / place / "study-albums").mkdir(parents=True)
    for what in (
        "study-albums", "albums", "configs/studies/albums.yaml", str(root / "configs" / "studies" / "albums.yaml"),
        f"{place}/study-albums", str(root / place / "study-albums"),
    ):  # fmt: skip
        assert report_name(root, what) == "study-albums", what
    assert [report_name(root, what) for what in ("quickstart", "own-name")] == ["quickstart", "own-name"]
    with pytest.raises(FedprintError, match=r"nowhere\.yaml: no such file"):
        report_name(root, "nowhere.yaml")
    foreign = tmp_path_factory.mktemp("elsewhere") / "quickstart.yaml"
    foreign.write_text("{}")
    with pytest.raises(FedprintError, match=r"'quickstart' is the report of configs/experiments/quickstart\.yaml"):
        report_name(root, str(foreign))


def test_a_study_is_found_by_the_name_of_its_report() -> None:
    assert request_for(CHECKOUT, "study-albums") == request_for(CHECKOUT, "study-albums", folders=("studies",))
    assert request_for(CHECKOUT, "study-albums").path.name == "albums.yaml"


def test_a_path_counts_from_a_folder_first(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    beside = tmp_path_factory.mktemp("beside")
    for folder in (beside, project.root):
        (folder / "base.yaml").write_text(yaml.safe_dump(dict(TINY)))
    (project.root / "here.yaml").write_text(yaml.safe_dump(dict(TINY)))
    assert file_of(project.root, "base.yaml", beside=beside) == beside / "base.yaml"
    assert file_of(project.root, "here.yaml", beside=beside) == project.root / "here.yaml"


@pytest.mark.parametrize(
    ("what", "words"),
    [("nothing", r"unknown experiment 'nothing'; choose one of .*quickstart.*, or give a path"),
     ("nothing.yaml", r"nothing\.yaml: no such file")],
)  # fmt: skip
def test_what_does_not_exist_is_one_line(what: str, words: str) -> None:
    with pytest.raises(FedprintError, match=words) as refused:
        request_for(CHECKOUT, what)
    assert "\n" not in str(refused.value)


def test_a_name_that_would_leave_the_folder_of_reports_is_refused() -> None:
    with pytest.raises(FedprintError, match="is no name for an experiment"):
        request_for(CHECKOUT, "quickstart", name=str(Path("..") / "x"))
