"""The command line, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_project import CHECKOUT, TINY, Project

from fedprint.cli.main import main
from fedprint.kinds.federation.stages.paths import Job


def _fedprint(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command and return its exit code."""
    monkeypatch.setattr("sys.argv", ["fedprint", *words])
    monkeypatch.setenv("COLUMNS", "160")
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def _files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_an_existing_store_is_attacked_again_without_retraining(
    tiny: Job, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _files(tiny.paths.base)
    words = ["attack", str(tiny.paths.updates), "--set", "attacks.1.k=1", "--out", str(project.root / "again")]
    assert _fedprint(monkeypatch, *words) == 0
    shown = capsys.readouterr().out
    assert "tiny random-0" in shown
    assert "(selected)" in shown
    assert all(name["name"] in shown for name in TINY["attacks"])
    assert _files(tiny.paths.base) == before, "the run's own results must stay"
    assert (project.root / "again" / "evaluation" / "random-0" / "rows.jsonl").is_file()


def test_other_settings_of_an_attack_have_a_folder_of_their_own(
    tiny: Job, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in (1, 2):
        assert _fedprint(monkeypatch, "attack", str(tiny.paths.updates / "observed"), "--set", f"attacks.1.k={k}") == 0
    assert len(list((project.root / "work" / "attacks").iterdir())) == 2


@pytest.mark.parametrize("assignment", ["federation.rounds=3", "data.bias=0", "seeds=[1]", "name=other"])
def test_attacking_again_refuses_settings_of_the_records(
    tiny: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], assignment: str
) -> None:
    assert _fedprint(monkeypatch, "attack", str(tiny.paths.updates), "--set", assignment) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "attacks, selection, evaluation" in error
    assert "fedprint run" in error


def test_attacking_what_is_no_store_says_what_to_give(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _fedprint(monkeypatch, "attack", str(project.root / "nowhere")) == 2
    assert "updates/<prior>-<seed>" in capsys.readouterr().err


def test_dry_run_estimates_and_writes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tiny", TINY)
    before = _files(project.root)
    assert _fedprint(monkeypatch, "run", "tiny", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("nothing written", "time, federations", "disk", "memory", "MiB"))
    assert "64 of " in shown, "8 rounds of half of 16 devices"
    assert _files(project.root) == before


def test_config_prints_the_resolved_settings_and_their_hash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDPRINT_ROOT", str(CHECKOUT))
    hashes = []
    for assignment in ("federation.rounds=20", "federation.rounds=21"):
        assert _fedprint(monkeypatch, "config", "quickstart", "--set", assignment) == 0
        shown = capsys.readouterr().out
        assert assignment.split("=")[1] in shown
        hashes.append(shown.splitlines()[-1])
    assert hashes[0].startswith("# config hash ")
    assert hashes[0] != hashes[1]


def test_help_has_an_example_for_every_command_with_an_argument(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("run", "attack", "compare", "summary", "config"):
        assert _fedprint(monkeypatch, command, "--help") == 0
        assert f"Example: fedprint {command}" in capsys.readouterr().out


# Data -----------------------------------------------------------------------------------------------------------------


def test_data_list_shows_what_is_embedded_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDPRINT_DATA", str(tmp_path))
    assert _fedprint(monkeypatch, "data", "list") == 0
    shown = capsys.readouterr().out
    assert "embedded" in shown
    assert [
        name for name in ("albums", "mnist_writers", "ahcd_writers", "blog", "presidents") if name not in shown
    ] == []
    assert "missing: --data-dir or FEDPRINT_DATA" in shown


def test_data_describe_albums_writes_a_contact_sheet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sheet = tmp_path / "albums.png"
    assert _fedprint(monkeypatch, "data", "describe", "albums", "--out", str(sheet)) == 0
    shown = capsys.readouterr().out
    assert "120 / 120 / 120" in shown
    assert "Apache-2.0" in shown
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_data_describe_and_validate_a_real_data_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data_dir: Path, tmp_path: Path
) -> None:
    """Of real people nothing but numbers is shown."""
    monkeypatch.chdir(tmp_path)
    assert _fedprint(monkeypatch, "data", "describe", "presidents", "--data-dir", str(data_dir)) == 0
    shown = capsys.readouterr().out
    assert "users" in shown
    assert "licence" in shown
    assert _fedprint(monkeypatch, "data", "validate", str(data_dir / "presidents")) == 0
    assert "valid" in capsys.readouterr().out
    assert _fedprint(monkeypatch, "data", "list", "--data-dir", str(data_dir)) == 0
    assert str(data_dir / "presidents") in capsys.readouterr().out.replace("\n", "")
    assert list(tmp_path.iterdir()) == []
