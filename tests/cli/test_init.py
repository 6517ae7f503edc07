"""``fedprint init``: a folder to work in, without a clone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_project import CHECKOUT

from fedprint.cli.init import init
from fedprint.errors import FedprintError
from fedprint.kinds.requests import request_for
from fedprint.lab.project import SHIPPED, find_root


def test_it_makes_a_project_that_knows_the_shipped_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPRINT_ROOT", raising=False)
    init(tmp_path / "deep" / "mine")
    root = find_root(tmp_path / "deep" / "mine" / "configs" / "experiments")
    assert root == tmp_path / "deep" / "mine"
    assert request_for(root, "quickstart").name == "quickstart"


def test_the_shipped_files_are_those_of_the_clone() -> None:
    """The wheel has what ``configs/`` holds, because the package's folder is a link to it."""
    assert SHIPPED.resolve() == CHECKOUT / "configs"


def test_it_refuses_a_folder_that_holds_anything_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(FedprintError, match="not empty"):
            init(taken)
    with pytest.raises(FedprintError, match="cannot be made"):
        init(tmp_path / "file" / "below")


def test_outside_of_a_project_an_error_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPRINT_ROOT", raising=False)
    with pytest.raises(FedprintError, match="fedprint init DIR"):
        find_root(tmp_path)
