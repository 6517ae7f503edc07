"""A project under git and DVC, for tests that start the real things."""

from __future__ import annotations

from pathlib import Path

import pytest
from dvc_project import dvc, git
from tiny_project import CHECKOUT, Project


@pytest.fixture
def versioned(project: Project) -> Path:
    """Put the test's project under git and DVC, with nothing committed; return its folder."""
    root = project.root
    for name in (".gitignore", ".dvcignore"):
        (root / name).write_bytes((CHECKOUT / name).read_bytes())
    (root / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    git(root, "init", "-q")
    assert dvc(root, "init", "-q").returncode == 0
    (root / ".dvc" / "config").write_bytes((CHECKOUT / ".dvc" / "config").read_bytes())
    git(root, "reset", "-q")
    return root
