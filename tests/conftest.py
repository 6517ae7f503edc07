"""Shared fixtures: what a test needs from outside (needs.py), and one tiny albums experiment run once per session."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import chromium as browsers
import postgresql as servers
import pytest
import slow_run
from hypothesis import settings
from needs import missing
from tiny_project import TINY, Project, copy_of, make_project, project_in

if TYPE_CHECKING:
    from fedprint.lab.graph import Task

settings.register_profile("fedprint", deadline=None)  # a busy machine is no error
settings.load_profile("fedprint")
os.environ.pop("MLFLOW_TRACKING_URI", None)  # no test may write to a team's server
# Before anything imports torch: tests run side by side, and threads that wait for a busy core spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Record a run of all slow tests."""
    slow_run.register(config)


@pytest.fixture(autouse=True)
def _data_folder_of_the_session() -> Iterator[None]:
    """``--data-dir`` sets FEDPRINT_DATA for its process, which here runs the next test too."""
    named = os.environ.get("FEDPRINT_DATA")
    yield
    os.environ.pop("FEDPRINT_DATA", None)
    if named is not None:
        os.environ["FEDPRINT_DATA"] = named


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data sets, or skip the test."""
    named = os.environ.get("FEDPRINT_DATA")
    if not named or not Path(named).is_dir():
        missing("data", "FEDPRINT_DATA does not name a folder of data sets")
    return Path(named)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of a Chromium, or skip the test; ``chromium.browser()`` starts it."""
    found = browsers.installed()
    if found is None:
        missing("chromium", "no Chromium: apt-get install chromium, or name one in FEDPRINT_CHROMIUM")
    return found


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Return the URL of an empty database on a server of this session, or skip the test."""
    if servers.installed() is None:
        missing("postgresql", "no PostgreSQL server: apt-get install postgresql")
    if importlib.util.find_spec("psycopg") is None:
        missing("postgresql", "psycopg is not installed: pip install 'psycopg[binary]'")
    with servers.server() as url:
        yield url


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
