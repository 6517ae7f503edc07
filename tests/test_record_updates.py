"""The example that records a federation in plain PyTorch leaves a folder that can be read and attacked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import recordings

EXAMPLE = Path(__file__).parents[1] / "examples" / "record_updates.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("by-hand") / "recorded"
    done = run(str(where))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("240 updates recorded in ")
    return where


def test_the_recorded_updates_name_their_users(folder: Path, tmp_path: Path) -> None:
    asked = recordings.recorded(folder, tmp_path)
    assert len(asked.fit) == len(asked.ask) == 120 and set(asked.answers) == set(range(12))
    measured = recordings.ap(asked)
    assert measured.lo > 2 * measured.chance, measured


def test_the_index_says_nothing_of_the_private_users(folder: Path) -> None:
    lines = "".join(path.read_text() for path in sorted((folder / "index").iterdir()))
    assert "anonymous" not in lines and lines.count('"user": "user-') == 120


def test_without_a_folder_it_says_how_to_call_it() -> None:
    assert run().stderr == "usage: python examples/record_updates.py FOLDER\n"
