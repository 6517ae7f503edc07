"""The tiny inversion experiment: its images, its configuration, and one that has run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_inversion import SMALL, load, ran, write_blobs
from tiny_project import Project, make_project

from fedprint.evaluation.rows import Row
from fedprint.kinds.inversion.config import InversionExperiment
from fedprint.kinds.inversion.page import publish
from fedprint.kinds.inversion.results.rows import all_rows
from fedprint.kinds.inversion.results.scene import Results


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_blobs(folder)
    return folder


@pytest.fixture
def small(project: Project, blobs: Path, monkeypatch: pytest.MonkeyPatch) -> InversionExperiment:
    monkeypatch.setenv("FEDPRINT_DATA", str(blobs))
    project.write("small", SMALL)
    return load(project.root, "small")


@pytest.fixture(scope="module")
def finished(blobs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, list[Row], Path]:
    """The whole experiment, run once."""
    root = tmp_path_factory.mktemp("inversion")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRINT_ROOT", str(root))
        patch.setenv("FEDPRINT_DATA", str(blobs))
        make_project(root).write("small", SMALL)
        results = ran(load(root, "small"), root / "stages")
        rows = all_rows(results)
        publish(results, rows, root / "reports" / "small")
    return results, rows, root
