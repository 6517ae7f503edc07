"""A pool of processes that know the toy stages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedprint.lab.workers.pool import LocalPool


@pytest.fixture(scope="session")
def toy_path() -> Iterator[None]:
    """Let other processes import toy_work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        yield


@pytest.fixture
def pool(toy_path: None) -> Iterator[LocalPool]:
    with LocalPool(["toy_work"]) as pool:
        yield pool
