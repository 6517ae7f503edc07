"""The tiny inversion experiment: its images, its configuration, and one that has run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_inversion import SMALL, in_this_process, write_blobs
from tiny_project import Project

from fedprint.evaluation.rows import Row
from fedprint.kinds.inversion import run
from fedprint.kinds.inversion.config import (
    InversionExperiment,
    load_inversion,
)
from fedprint.kinds.inversion.networks import images_of
from fedprint.kinds.inversion.rows import all_rows
from fedprint.kinds.inversion.scene import Results


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_blobs(folder)
    return folder


@pytest.fixture
def small(project: Project, blobs: Path, monkeypatch: pytest.MonkeyPatch) -> InversionExperiment:
    monkeypatch.setenv("FEDPRINT_DATA", str(blobs))
    images_of.cache_clear()
    project.write("small", SMALL)
    return load_inversion(project.root, "small")


@pytest.fixture(scope="module")
def finished(blobs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, list[Row], Path]:
    """The whole experiment, run once."""
    from tiny_project import make_project

    root = tmp_path_factory.mktemp("inversion")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRINT_ROOT", str(root))
        patch.setenv("FEDPRINT_DATA", str(blobs))
        patch.setattr(run, "run_all", in_this_process)
        images_of.cache_clear()
        make_project(root).write("small", SMALL)
        results = run.run_cells(load_inversion(root, "small"))
        rows = all_rows(results)
        run.publish(results, rows, root / "reports" / "small")
    return results, rows, root
