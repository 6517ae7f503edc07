"""A small quickstart and a small plane through their real stages, to a remote, and back in a fresh clone."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dvc_project import commit, dvc, git
from tiny_project import CHECKOUT, TINY, Project

from fedprint.kinds import driver
from fedprint.kinds.sources import source
from fedprint.lab.versions import pull

pytestmark = pytest.mark.slow

PLANE: Mapping[str, Any] = {
    "report": {"title": "p"},
    "experiment": "quickstart",
    "seeds": [0],
    "strategies": [{"name": "noise", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.1]}],
}


def test_a_clone_gets_the_update_dump_of_every_commit(
    project: Project, versioned: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, shelf, fresh = versioned, tmp_path_factory.mktemp("shelf"), tmp_path_factory.mktemp("fresh") / "clone"
    assert dvc(root, "remote", "add", "--default", "shelf", str(shelf)).returncode == 0
    # The stages of the quickstart name the code that they depend on.
    shutil.copytree(CHECKOUT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    project.write("plane", PLANE)
    kept = {}
    for rounds in (4, 6):
        project.write("quickstart", {**TINY, "federation": {**TINY["federation"], "rounds": rounds}})
        driver.run(source(root, "quickstart"), jobs=1)
        driver.run(source(root, "plane"), jobs=1, keep=True)
        kept[rounds] = recorded_updates(root)
        assert git(root, "diff", "--cached", "--name-only") == "", "running stages nothing in git"
        commit(root, f"{rounds} rounds")
        done = dvc(root, "push")
        assert done.returncode == 0, done.stderr
    assert len(kept[4]) == len(kept[6]) > 2 and kept[4] != kept[6]
    assert {Path(name).parts[1] for name in kept[6]} == {"quickstart", "plane"}
    git(root.parent, "clone", "-q", str(root), str(fresh))
    done = dvc(fresh, "pull")
    assert done.returncode == 0, done.stderr
    assert recorded_updates(fresh) == kept[6]
    assert "up to date" in dvc(fresh, "status").stdout
    git(fresh, "checkout", "-q", "HEAD~1")
    assert "fetched" in pull(fresh)
    assert recorded_updates(fresh) == kept[4]
    assert git(fresh, "status", "--short") == ""


def recorded_updates(root: Path) -> dict[str, bytes]:
    """Return every file of the updates as the server saw them, by its path."""
    files = [path for path in (root / "experiments").rglob("*") if "observed" in path.parts and path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}
