"""The issue's bad input: a one-line error with the remedy, exit code 2, and nothing half-written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import TINY, Project, run_stages

from fedprint.cli.main import main
from fedprint.data.formats.describe import write_table
from fedprint.data.formats.files import npz_bytes, sha256_of
from fedprint.errors import FedprintError
from fedprint.lab.tracking.database import create_database

COLUMNS: Mapping[str, np.ndarray] = {
    "images": np.random.default_rng(0).integers(0, 256, size=(24, 12, 12), dtype=np.uint8),
    "labels": np.tile(np.arange(3), 8),
    "user": np.repeat(np.arange(4), 6),
}
HEADER = {"licence": "CC0", "class_names": ["a", "b", "c"]}


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A valid folder of four users, outside the project."""
    folder = tmp_path / "data" / "digits"
    write_table(folder, COLUMNS, HEADER)
    return folder


def _edit_sidecar(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "digits.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def _replace_columns(folder: Path, **changed: np.ndarray) -> None:
    """Write other columns behind the writer's back, with a sidecar that vouches for them."""
    columns = {**COLUMNS, **changed}
    (folder / "digits.npz").write_bytes(npz_bytes(columns))

    def vouch(values: dict[str, Any]) -> None:
        values["files"]["digits.npz"] = {"sha256": sha256_of(folder / "digits.npz")}
        values["arrays"] = {k: {"shape": list(v.shape), "dtype": str(v.dtype)} for k, v in columns.items()}
        values["counts"] = {}

    _edit_sidecar(folder, vouch)


def _one_line(error: str) -> str:
    """Return the only line that is no progress ("NAME 0/3  ...")."""
    lines = [line for line in error.splitlines() if line.strip() and not re.match(r"\S+ \d+/\d+  ", line)]
    assert len(lines) == 1, error
    assert lines[0].startswith("error: ")
    return lines[0]


def _cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run the command; it must end with exit code 2 and one line, which is returned."""
    monkeypatch.setattr("sys.argv", ["fedprint", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return _one_line(capsys.readouterr().err)


# Data that lie --------------------------------------------------------------------------------------------------------


def _truncate(folder: Path) -> None:
    path = folder / "digits.npz"
    path.write_bytes(path.read_bytes()[:-100])
    _edit_sidecar(folder, lambda values: values["files"].update({"digits.npz": {"sha256": sha256_of(path)}}))


def _flip(folder: Path) -> None:
    path = folder / "digits.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _label_out_of_range(folder: Path) -> None:
    _replace_columns(folder, labels=np.where(np.arange(24) == 5, 7, COLUMNS["labels"]))


def _class_without_example(folder: Path) -> None:
    _edit_sidecar(folder, lambda values: values.update(class_names=["a", "b", "c", "ghost"]))


def _other_counts(folder: Path) -> None:
    _edit_sidecar(folder, lambda values: values["counts"].update(users=5))


def _other_type(folder: Path) -> None:
    _edit_sidecar(folder, lambda values: values["arrays"]["labels"].update(dtype="int16"))


BROKEN = {
    "corrupt npz": (_truncate, ["digits.npz", "cannot be read"]),
    "flipped bit": (_flip, ["digits.npz", "sha256", "restore"]),
    "label out of range": (_label_out_of_range, ["digits.npz", "labels", "7", "0..2"]),
    "class without example": (_class_without_example, ["digits.npz", "ghost", "drop it"]),
    "sidecar disagrees on users": (_other_counts, ["digits.npz", "counts.users = 5", "correct the sidecar"]),
    "sidecar disagrees on a type": (_other_type, ["digits.npz", "labels", "int16", "align both"]),
}


@pytest.mark.parametrize(("damage", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_damaged_data_are_refused_by_validate_and_before_anything_is_written(
    digits: Path,
    damage: Callable[[Path], None],
    words: list[str],
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(digits)
    error = _cli(monkeypatch, capsys, "data", "validate", str(digits))
    assert [word for word in words if word not in error] == [], error
    project.write("own", _own(digits))
    task = project.task("own")
    with pytest.raises(FedprintError) as refused:
        run_stages(task, until="prepare")
    assert f"error: {refused.value}" == error
    assert not task.at("prior").exists()


def _own(folder: Path) -> dict[str, Any]:
    return {**TINY, "data": {"name": "folder", "path": str(folder)}}


def test_the_undamaged_data_are_fine(digits: Path, project: Project) -> None:
    project.run("own", _own(digits), until="prepare")


def test_a_run_over_damaged_data_is_one_line_and_leaves_no_report(
    digits: Path, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once through the runner: the error of a stage in another process."""
    _label_out_of_range(digits)
    project.write("own", _own(digits))
    create_database(project.root)
    capsys.readouterr()  # what MLflow says of its tables
    error = _cli(monkeypatch, capsys, "run", "own", "--jobs", "1")
    assert "random-0: stage prepare: " in error and "0..2" in error
    assert not (project.root / "reports").exists()


def test_a_user_with_one_example_is_named_with_a_remedy(project: Project) -> None:
    project.write("single", {**TINY, "data": {**TINY["data"], "images": 1}})
    task = project.task("single")
    with pytest.raises(FedprintError, match=r"user 0 has 1 example\(s\).*drop the user"):
        run_stages(task, until="prepare")
    assert not task.at("prior").exists()


def test_users_with_one_example_are_left_out_of_a_folder_of_enough_others(digits: Path, project: Project) -> None:
    """The source promises users with at least ``min_examples``; the lonely one does not take part."""
    from fedprint.data.prepared import load_users

    _replace_columns(digits, user=np.where(np.arange(24) == 23, 9, COLUMNS["user"]))
    task = project.run("own", _own(digits), until="prepare")
    assert [user.user_id for user in load_users(task.at("prior"))] == [0, 1, 2, 3]


# Experiments that cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "nowhere.yaml"], ["nowhere.yaml", "no such file"]),
        (["run", "tiny", "--name", "../other"], ["'../other' is no name for an experiment"]),
        (["tune", "nothing"], ["nothing", "albums"]),
        (["compare", "tiny", "tiny", "--ignore", "seed"], ["--exact"]),
        (["run", "nothing"], ["unknown experiment 'nothing'", "choose one of", "quickstart"]),
        (["run", "tiny", "--set", "data.name=atlantis"], ["--set data.name=atlantis: data", "'atlantis'", "'albums'"]),
        (
            ["run", "tiny", "--set", "federation.fraction=1.5"],
            ["federation.fraction", "less than or equal to 1", "1.5"],
        ),
        (
            ["run", "tiny", "--set", "defences=[{name: noise, sigma: -0.1}]"],
            ["defences.0.sigma", "-0.1", "or equal to 0"],
        ),
        (["run", "tiny", "--set", "data={name: folder, path: nowhere}"], ["nowhere", "no such folder"]),
        (["run", "blog", "--set", "data.users=4"], ["data set 'blog'", "--data-dir", "unpack the Blog"]),
        (
            ["run", "tiny", "--set", "federation.backend=fast", "--dry-run"],
            ["federation.backend", "fast", "sequential"],
        ),
        (["run", "tiny", "--set", "store.layers=[tail]", "--dry-run"], ["store.layers", "tail", "head.weight"]),
        (["data", "describe", "atlantis"], ["atlantis"]),
        (["data", "fetch", "blog"], ["cannot be fetched", "mnist_writers"]),
        (["summary", "tiny"], ["tiny"]),
        (["compare", "tiny", "quickstart"], ["tiny"]),
    ],
    ids=lambda value: " ".join(value)[:40] if value[0] in ("run", "tune", "data", "summary", "compare") else None,
)
def test_impossible_commands_are_one_line_and_write_nothing(
    words: list[str],
    expected: list[str],
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("FEDPRINT_DATA", raising=False)
    project.write("tiny", TINY)
    before = _files(project.root)
    error = _cli(monkeypatch, capsys, *words)
    assert [word for word in expected if word not in error] == [], error
    assert _files(project.root) == before


def _files(root: Path) -> list[Path]:
    """Return all files and folders but locks, which tell nobody anything."""
    return [path for path in sorted(root.rglob("*")) if root / "work" not in (path, *path.parents)]


def test_the_installed_command_ends_with_exit_code_2(project: Project) -> None:
    """Once for real, in a process of its own."""
    env = {**os.environ, "FEDPRINT_ROOT": str(project.root)}
    command = [sys.executable, "-m", "fedprint", "run", "nothing"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "choose one of" in _one_line(run.stderr)
    assert run.stdout == ""
