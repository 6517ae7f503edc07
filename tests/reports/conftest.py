"""Fixtures of the report's tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from report_cases import write_evaluations


@pytest.fixture
def evaluations(tmp_path: Path) -> Callable[..., list[Path]]:
    """Return a writer of evaluation folders below the test's own folder."""
    return partial(write_evaluations, tmp_path / "evaluation")
