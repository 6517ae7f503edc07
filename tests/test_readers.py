"""No damaged file leads to a traceback, a long wait, much memory, or a file beside its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import survive
from readers import READERS


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_damaged_file_is_refused_in_one_line_or_read(name: str, tmp_path: Path) -> None:
    ended = survive(READERS[name], tmp_path / "fuzz", inputs=150, seed=0)
    assert ended["refused"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(READERS))
def test_thousands_of_damaged_files(name: str, tmp_path: Path) -> None:
    survive(READERS[name], tmp_path / "fuzz", inputs=4_000, seed=1)
