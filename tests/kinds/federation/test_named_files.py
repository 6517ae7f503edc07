"""Files named in settings: their contents are part of keys, not their paths alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tiny_project import TINY, Project

from fedprint.component import Component
from fedprint.defences.on_data import MmAug
from fedprint.kinds.federation.config import Experiment, check_experiment
from fedprint.kinds.federation.jobs import job_of
from fedprint.kinds.federation.named_files import NO_FILES, data_paths, files_sha256, named_files
from fedprint.lab.keys import stage_key

NAMING: dict[str, dict[str, Any]] = {
    "model": {"model": {"name": "mobilenet", "width": 0.25, "weights": "named"}},
    "defence": {"defences": [{"name": "mm-aug", "alpha": 1, "features": "imagenet", "weights": "named"}]},
    "query": {"analyses": [{"name": "profile", "path": "named"}]},
    "encoder": {"analyses": [{"name": "cross-modal", "encoder": "sentence-transformers", "encoder_model": "named"}]},
}


def experiment(**changes: Any) -> Experiment:
    return check_experiment({"name": "tiny", **TINY, **changes}, "test")


def keys(config: Experiment) -> dict[str, str]:
    job = job_of(config, "random", 0, label="tiny")
    return {stage.name: stage_key(job, stage, {}, "cpu") for stage in job.work.graph.stages}


@pytest.mark.parametrize("kind", NAMING)
def test_every_component_that_names_a_file_says_so(project: Project, kind: str) -> None:
    config = experiment(**NAMING[kind])
    assert named_files(config) == ("named",)
    missing = files_sha256(config)
    Path("named").write_text("one")
    first = files_sha256(config)
    Path("named").write_text("another")
    assert len({missing, first, files_sha256(config), NO_FILES}) == 4


def test_settings_without_files_have_no_digest(project: Project) -> None:
    assert named_files(experiment()) == () and files_sha256(experiment()) == NO_FILES
    assert MmAug(alpha=1).reads == Component().reads == ()


def test_a_folder_counts_with_names_and_contents_and_may_lie_in_the_data_folder(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, data = experiment(**NAMING["query"]), project.root / "data"
    monkeypatch.setenv("FEDPRINT_DATA", str(data))
    (data / "named").mkdir(parents=True)
    digests = {files_sha256(config)}
    for name in ("a", "b"):
        (data / "named" / name).write_text("same")
        digests.add(files_sha256(config))
    (data / "named" / "a").rename(data / "named" / "c")
    assert len(digests | {files_sha256(config)}) == 4


def test_a_file_of_equal_size_and_another_time_is_read_again(project: Project) -> None:
    config, file = experiment(**NAMING["model"]), Path("named")
    file.write_text("one")
    before = files_sha256(config)
    file.write_text("two")
    os.utime(file, ns=(0, 1))
    assert files_sha256(config) != before


def test_the_stages_that_may_read_it_have_new_keys_when_the_content_changes(project: Project) -> None:
    config = experiment(**NAMING["model"])
    Path("named").write_text("one")
    before = keys(config)
    Path("named").write_text("other")
    after = keys(config)
    assert [stage for stage in before if before[stage] != after[stage]] == [
        "choose", "federate", "ask", "attack", "analyse", "evaluate",
    ]  # fmt: skip
    plain = keys(experiment())
    Path("named").write_text("third")
    assert keys(experiment()) == plain, "a file that no setting names is nobody's business"


def test_stages_that_read_data_may_open_the_data_folder_its_links_and_a_folder_of_ones_own(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, linked, own = (project.root / name for name in ("data", "linked", "own"))
    for folder in (data, linked, own):
        folder.mkdir()
    (data / "blog").symlink_to(linked)
    monkeypatch.setenv("FEDPRINT_DATA", str(data))
    assert data_paths(experiment().data) == (str(data), str(linked))
    mine = experiment(data={"name": "folder", "path": "own"})
    assert data_paths(mine.data) == (str(data), str(linked), str(own))
    assert named_files(mine) == (), "its digest is that of the data"
    monkeypatch.delenv("FEDPRINT_DATA")
    assert data_paths(experiment().data) == ()
