"""What a command is about: by name or by file, with a name of its own where something differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tiny_project import CHECKOUT, TINY, Project

from fedprint.errors import FedprintError
from fedprint.kinds.sources import source, variant


def test_a_name_and_a_path_mean_the_same_file() -> None:
    named = source(CHECKOUT, "quickstart")
    assert named == source(CHECKOUT, str(CHECKOUT / "configs" / "experiments" / "quickstart.yaml"))
    assert (named.name, named.path.name) == ("quickstart", "quickstart.yaml")


def test_a_study_is_found_by_name_and_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    by_path = source(CHECKOUT, "configs/studies/albums.yaml", folders=("studies",))
    assert by_path == source(CHECKOUT, "albums", folders=("studies",))
    assert by_path.name == "study-albums", "an experiment may have the study's name"


def test_a_file_may_lie_outside_the_project(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("elsewhere") / "mine.yaml"
    path.write_text(yaml.safe_dump(dict(TINY)))
    found = source(project.root, str(path))
    assert (found.name, found.path, found.root) == ("mine", path, project.root)
    assert found.values["report"] == TINY["report"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "quickstart"),
        ({"fast": True}, "quickstart-fast"),
        ({"assignments": ["federation.rounds=5"]}, "quickstart-rounds=5"),
        ({"fast": True, "assignments": ["split.priors=[random, iid]"]}, "quickstart-fast-priors=random_iid"),
        ({"strategies": ["mm-aug"]}, "quickstart-mm-aug"),
        ({"name": "own", "fast": True}, "own"),
    ],
)
def test_a_variant_has_a_name_of_what_differs(changes: dict[str, object], name: str) -> None:
    assert source(CHECKOUT, "quickstart", **changes).name == name  # type: ignore[arg-type]


def test_what_makes_no_short_name_gets_a_digest_that_tells_variants_apart() -> None:
    names = {
        variant("quickstart", fast=fast, assignments=[f"data={{name: folder, path: {path}}}"])
        for fast in (False, True)
        for path in ("/a", "/b")
    }
    assert len(names) == 4 and all(name.startswith("quickstart-") and "/" not in name for name in names)


@pytest.mark.parametrize(
    ("what", "words"),
    [("nothing", r"unknown experiment 'nothing'; choose one of .*quickstart.*, or give a path"),
     ("nothing.yaml", r"nothing\.yaml: no such file")],
)  # fmt: skip
def test_what_does_not_exist_is_one_line(what: str, words: str) -> None:
    with pytest.raises(FedprintError, match=words) as refused:
        source(CHECKOUT, what)
    assert "\n" not in str(refused.value)


def test_a_name_that_would_leave_the_folder_of_reports_is_refused() -> None:
    with pytest.raises(FedprintError, match="is no name for an experiment"):
        source(CHECKOUT, "quickstart", name=str(Path("..") / "x"))
