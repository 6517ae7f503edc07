"""Fixtures of studies."""

from __future__ import annotations

import pytest
from tiny_project import TINY, Project
from tiny_study import STUDY, study_of, write_study

from fedprint.kinds.study.config import Study


@pytest.fixture
def home(project: Project) -> Project:
    project.write("tiny", TINY)
    (project.root / "configs" / "users.yaml").unlink(missing_ok=True)
    write_study(project, "demo", STUDY)
    return project


@pytest.fixture
def study(home: Project) -> Study:
    return study_of(home.root)
