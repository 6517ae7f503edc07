"""Shared fixtures: real data where FEDPRINT_DATA names them, and one tiny albums experiment run once per session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tiny_project import TINY, Project, copy_of, make_project, project_in

if TYPE_CHECKING:
    from fedprint.lab.graph import Task

settings.register_profile("fedprint", deadline=None)  # a busy machine is no error
settings.load_profile("fedprint")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data sets, or skip the test."""
    named = os.environ.get("FEDPRINT_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("FEDPRINT_DATA does not name a folder of data sets")
    return Path(named)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return an empty project, which is the current directory."""
    monkeypatch.setenv("FEDPRINT_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return make_project(tmp_path)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """Return the finished run of ``tiny``; read it only, and copy it (see ``tiny``) to change it."""
    with project_in(tmp_path_factory.mktemp("tiny")) as project:
        return project.run("tiny", TINY)


@pytest.fixture
def tiny(tiny_run: Task, project: Project) -> Task:
    """Return a copy of the finished run of ``tiny``, inside the test's own project."""
    return copy_of(tiny_run, project.root / "stages" / "tiny" / tiny_run.item)
