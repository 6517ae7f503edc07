"""Places to write are checked before the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedprint.errors import FedprintError
from fedprint.lab.outputs import file_for, folder_for


def test_folders_above_are_made_and_nothing_else(tmp_path: Path) -> None:
    file = file_for(tmp_path / "new" / "deeper" / "a.png")
    assert file.parent.is_dir()
    assert list(file.parent.iterdir()) == []


def test_a_place_below_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    for check in (file_for, folder_for):
        with pytest.raises(FedprintError, match=r"plain/out cannot be written \(.*\); choose"):
            check(tmp_path / "plain" / "out")


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    with pytest.raises(FedprintError, match="is a file"):
        folder_for(tmp_path / "plain")
    with pytest.raises(FedprintError, match="is a folder"):
        file_for(tmp_path)
