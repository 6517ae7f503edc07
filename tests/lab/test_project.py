"""Where a project is, and that one report has one writer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedprint.errors import FedprintError
from fedprint.lab.project import checked_name, find_root, writing


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FEDPRINT_ROOT", raising=False)
    for name in ("pyproject.toml", "dvc.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "src" / "deep").mkdir(parents=True)
    return tmp_path


def test_the_root_is_found_from_anywhere_below_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_root(root / "src" / "deep") == root
    monkeypatch.chdir(root / "src")
    assert find_root() == root


def test_a_root_named_in_the_environment_wins_and_is_checked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRINT_ROOT", str(root))
    assert find_root(Path("/")) == root
    monkeypatch.setenv("FEDPRINT_ROOT", str(root / "src"))
    with pytest.raises(FedprintError, match=r"holds no fedprint-project, nor pyproject\.toml"):
        find_root(root)


def test_outside_of_a_project_the_error_says_what_to_do(root: Path) -> None:
    with pytest.raises(FedprintError, match="fedprint init DIR"):
        find_root(root.parent)


@pytest.mark.parametrize("name", ["../x", "a b", "", ".hidden", "a/b"])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(FedprintError, match="is no name for an experiment"):
        checked_name(name)


HOLDING = """
import sys
from pathlib import Path
from fedprint.lab.project import writing
with writing(Path(sys.argv[1]), "other"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_do_not_write_one_report(root: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FedprintError, match="'other' is running in another process"), writing(root, "other"):
            pass
        with writing(root, "quickstart"):
            pass
        holder.kill()
    with writing(root, "other"):
        pass
