"""What a newcomer types wrong: the error names it, and says what was meant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedprint.cli.main import main
from fedprint.data.formats.describe import write_table
from fedprint.errors import did_you_mean


def _error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["fedprint", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


TYPED = {
    "impossible value": (["model.channels=[0, 8, 9]"], ["--set model.channels=[0, 8, 9]: model.channels"]),
    "unknown setting": (["model.hiden=0"], ["--set model.hiden=0", "did you mean 'hidden'?"]),
    "unknown section": (["modl.hidden=4"], ["--set modl.hidden=4", "did you mean 'model'?"]),
    "unknown attack": (["attacks.0.name=knnn"], ["--set attacks.0.name=knnn", "did you mean 'knn'?"]),
    "unknown data": (["data.name=foldr"], ["--set data.name=foldr", "did you mean 'folder'?"]),
    "unknown defence": (["defences=[{name: nois}]"], ["--set defences=[{name: nois}]", "did you mean 'noise'?"]),
    "inside a mapping": (["data={name: albums, users: 0}"], ["--set data={name: albums, users: 0}: data.users"]),
    "the last one counts": (["federation.lr=1", "federation.lr=-1"], ["--set federation.lr=-1: federation.lr"]),
}


@pytest.mark.parametrize(("typed", "words"), TYPED.values(), ids=TYPED.keys())
def test_errors_name_what_was_typed_and_not_the_file(
    typed: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = _error(monkeypatch, capsys, "config", "quickstart", *(w for text in typed for w in ("--set", text)))
    assert all(word in error for word in words), error
    assert "quickstart.yaml" not in error


def test_an_unknown_experiment_is_answered_with_the_closest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "did you mean 'quickstart'?" in _error(monkeypatch, capsys, "config", "quickstrt")


def test_nothing_close_is_not_guessed() -> None:
    assert did_you_mean("zzz", ["quickstart", "blog"]) == ""


def test_a_comparison_replaces_no_folder_of_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    words = ("compare", "quickstart", "mnist-writers", "--out", str(tmp_path))
    assert "holds other files" in _error(monkeypatch, capsys, *words)
    assert (tmp_path / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize(
    "words", [("compare", "quickstart", "mnist-writers"), ("data", "describe", "albums"), ("attack", "a/b")]
)
def test_an_out_that_cannot_be_made_is_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").write_text("x")
    assert "cannot be written" in _error(monkeypatch, capsys, *words, "--out", str(tmp_path / "plain" / "x.png"))


def test_a_budget_explains_what_protects_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = ["--clients", "1000", "--cohort", "220", "--rounds", "5", "--delta", "1e-2", "--sigma", "0.1"]
    monkeypatch.setattr("sys.argv", ["fedprint", "budget", *numbers])
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert "delta 0.01 is not below 1 / clients (0.001)" in out
    assert "protects nobody" in out


def test_tables_in_a_pipe_cut_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, classes = f"holiday_photos_{'of_a_long_name_' * 3}", [f"[b]class-{'x' * 60}-{c}" for c in range(2)]
    columns = {"images": np.zeros((12, 8, 8), np.uint8), "labels": np.tile([0, 1], 6), "user": np.repeat([0, 1, 2], 4)}
    write_table(tmp_path / name, columns, {"licence": "mine", "class_names": classes})
    monkeypatch.delenv("COLUMNS", raising=False)
    for words in (("data", "list"), ("data", "describe", name)):
        monkeypatch.setattr("sys.argv", ["fedprint", *words, "--data-dir", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr().out
        assert ended.value.code == 0 and "…" not in out
        assert name in out
    assert all(label in out for label in classes), "labels are no markup"


def test_help_imports_nothing_heavy() -> None:
    heavy = ("torch", "mlflow", "matplotlib", "pandas", "numpy", "pydantic", "rich", "plotly", "sklearn", "optuna")
    asked = f"import sys, fedprint.cli.main; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
