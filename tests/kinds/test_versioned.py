"""Which runs are versioned: files of the project as they are, on data that git knows."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import CHECKOUT, TINY, Project

from fedprint.data.catalogue.manifest import of_dataset, survey, write_manifest
from fedprint.data.formats.describe import write_table
from fedprint.kinds import driver
from fedprint.kinds.base import Findings
from fedprint.kinds.federation.config import load_experiment
from fedprint.kinds.federation.kind import FederationKind
from fedprint.kinds.requests import request_for
from fedprint.kinds.versioned import is_shipped, named_by_data


@pytest.fixture
def tiny(project: Project) -> Project:
    """A project with DVC and the experiment ``tiny``."""
    (project.root / ".dvc").mkdir()
    project.write("tiny", TINY)
    return project


@pytest.mark.parametrize(
    ("asked", "shipped"),
    [
        ({}, True),
        ({"name": "tiny"}, True),
        ({"name": "my-tiny"}, False),
        ({"fast": True}, False),
        ({"assignments": ["seeds=[1]"]}, False),
    ],
)
def test_a_file_of_the_project_is_versioned_as_it_is_and_under_its_own_name(
    tiny: Project, asked: dict[str, Any], shipped: bool
) -> None:
    assert is_shipped(request_for(tiny.root, "tiny", **asked)) is shipped


def test_without_dvc_and_from_elsewhere_nothing_is_versioned(
    tiny: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("elsewhere") / "mine.yaml"
    path.write_bytes((tiny.root / "configs" / "experiments" / "tiny.yaml").read_bytes())
    assert not is_shipped(request_for(tiny.root, str(path)))
    (tiny.root / ".dvc").rmdir()
    assert not is_shipped(request_for(tiny.root, "tiny"))


@pytest.mark.parametrize(
    ("failures", "versioned"), [({}, True), ({"random-1": "the disk is full"}, False)], ids=["whole", "a part fails"]
)
def test_only_a_whole_run_is_versioned(
    tiny: Project, monkeypatch: pytest.MonkeyPatch, failures: dict[str, str], versioned: bool
) -> None:
    published: list[str] = []
    found = Findings(metrics={}, failures=failures)
    monkeypatch.setattr(FederationKind, "carry_out", lambda *_: found)
    monkeypatch.setattr(driver, "conclude", lambda *_: None)
    monkeypatch.setattr(driver, "publish", lambda _request, _kind, config, _findings: published.append(config.name))
    with pytest.raises(driver.SomeFailed, match="disk is full") if failures else nullcontext():
        driver.run(request_for(tiny.root, "tiny"))
    assert published == (["tiny"] if versioned else [])


# Other data -----------------------------------------------------------------------------------------------------------


def write_digits(folder: Path, seed: int) -> None:
    """Write a data set of four users, of another content for each seed."""
    columns = {
        "images": np.random.default_rng(seed).integers(0, 256, size=(24, 12, 12), dtype=np.uint8),
        "labels": np.tile(np.arange(3), 8),
        "user": np.repeat(np.arange(4), 6),
    }
    write_table(folder, columns, {"licence": "CC0", "class_names": ["a", "b", "c"]})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("own", {"data": {"name": "folder", "path": "digits", "background_users": 0}}),
        ("a-plane", {"report": {"title": "p"}, "experiment": "own", "strategies": [
            {"name": "noise", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.1]}]}),
    ],
)  # fmt: skip
def test_data_of_another_content_never_replace_what_is_published(
    tiny: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, name: str, values: Any
) -> None:
    data = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("FEDPRINT_DATA", str(data))
    tiny.write("own", {**TINY, "data": {"name": "folder", "path": "digits", "background_users": 0}})
    if "experiment" in values:
        tiny.write(name, values)
    write_digits(data / "digits", 0)
    asked = request_for(tiny.root, name)
    assert is_shipped(asked) and named_by_data(asked) == asked, "git knows no data of this name"
    write_manifest(tiny.root, survey(data / "digits"))
    assert is_shipped(asked) and named_by_data(asked) == asked
    write_digits(data / "digits", 1)
    other = named_by_data(asked)
    assert other.name == f"{name}-data-{survey(data / 'digits').sha256[:8]}"
    assert not is_shipped(asked) and not is_shipped(other)
    mine = request_for(tiny.root, name, name="mine")
    assert named_by_data(mine) == mine
    write_manifest(tiny.root, survey(data / "digits"))
    assert is_shipped(asked), "once git knows them they are published"


def test_invented_people_are_settings_and_no_other_data(tiny: Project) -> None:
    asked = request_for(tiny.root, "tiny")
    people = load_experiment(asked).data.model_copy(update={"users": 9})
    write_manifest(tiny.root, of_dataset(people.load(None, 0)))
    assert is_shipped(asked) and named_by_data(asked) == asked


@pytest.mark.parametrize("name", ["presidents", "client-dp-100", "spn-mnist", "mnist-writers"])
def test_the_published_data_are_known(data_dir: Path, name: str) -> None:
    asked = request_for(CHECKOUT, name)
    assert named_by_data(asked) == asked
