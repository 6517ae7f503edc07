"""`fedprint audit DIR`: the page and its files, limits, names of users, and the command's former meaning."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from recorded_folder import write_recording

from fedprint.cli import audit_dp
from fedprint.cli.main import main

EVIL = "<script>alert(1)</script>"


def fedprint(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedprint", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = (EVIL, *(f"person-{u}" for u in range(1, 8)))
    return write_recording(tmp_path_factory.mktemp("cli") / "rec", users=names, title=f"a $x$ & {EVIL}", rounds=4)


def test_a_folder_outside_of_any_project_becomes_a_report(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPRINT_ROOT", raising=False)
    assert fedprint(monkeypatch, "audit", folder, "--json", "--attacks", "ridge,count") == 0
    shown = json.loads(capsys.readouterr().out)
    out = folder.with_name("rec-audit")
    assert shown == json.loads((out / "audit.json").read_text()) and shown["top1"] > 0.9
    assert {"index.html", "measurements.csv", "measurements.jsonl", "audit.json", "figures", "tables"} == {
        path.name for path in out.iterdir()
    }
    page = (out / "index.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;" in page, "the title is shown, as text"
    assert "person-3" not in page and "alert(1)" not in (out / "tables" / "users.csv").read_text()
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "mnist-writers-linked" in page and "no promise" in page


def test_names_are_shown_on_request_and_escaped(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    assert fedprint(monkeypatch, "audit", folder, "--out", out, "--show-users", "--attacks", "knn") == 0
    page = (out / "index.html").read_text()
    assert "person-3" in page and "<script>alert" not in page
    assert "person-3" not in (out / "audit.json").read_text()


def test_names_of_users_and_devices_stand_nowhere_without_being_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Devices are named as in the recording: known-0 to anonymous-5."""
    names = [f"Marker{u} <i>Surname</i>" for u in range(6)]
    folder, out = write_recording(tmp_path / "rec", users=names, rounds=4), tmp_path / "out"
    assert fedprint(monkeypatch, "audit", folder, "--out", out, "--attacks", "ridge,count,participation") == 0
    printed = capsys.readouterr()
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "plotly.min.js"]
    texts = {path.name: path.read_bytes().decode("latin-1") for path in files}
    texts |= {"stdout": printed.out, "stderr": printed.err}
    assert "index.html" in texts and "audit:" in printed.err
    secret = ("Marker", "Surname", *(f"{role}-{u}" for role in ("known", "anonymous") for u in range(6)))
    assert {name for name, text in texts.items() if any(word in text for word in secret)} == set()


@pytest.mark.parametrize(("limit", "code", "said"), [
    ("ap_over_chance=1.5", 3, "above 1.5"),
    ("ap=1", 0, ""),
    ("examples_read=0", 0, ""),
    ("apple=1", 2, "numbers: ap"),
    ("ap=much", 2, "NUMBER=LIMIT"),
    ("ap", 2, "NUMBER=LIMIT"),
    ("ap=nan", 2, "NUMBER=LIMIT"),
])  # fmt: skip
def test_limits_decide_the_exit_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    limit: str, code: int, said: str,
) -> None:  # fmt: skip
    words = ("--out", tmp_path / "out", "--attacks", "knn", "--fail-above", limit)
    assert fedprint(monkeypatch, "audit", folder, *words) == code
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith(("fail-above", "error"))]
    assert said in error and len(lines) == (code > 0)


@pytest.mark.parametrize("out", ["taken", "rec", "."])
def test_a_report_replaces_nothing_but_a_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    taken = folder.with_name("taken")
    taken.mkdir(exist_ok=True)
    (taken / "work.txt").write_text("mine")
    assert fedprint(monkeypatch, "audit", folder, "--out", folder.parent / out) == 2
    assert "--out" in capsys.readouterr().err and (taken / "work.txt").read_text() == "mine"


def test_what_is_no_recording_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedprint(monkeypatch, "audit", tmp_path / "missing") == 2
    assert "manifest.yaml" in capsys.readouterr().err and not (tmp_path / "missing-audit").exists()


def test_the_former_meaning_works_for_one_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = ("--clients", "40", "--cohort", "10", "--rounds", "2", "--sigma", "2", "--delta", "1e-5")
    assert fedprint(monkeypatch, "audit", *line, "--canaries", "20", "--json") == 0
    shown = capsys.readouterr()
    assert "audit-dp" in shown.err and json.loads(shown.out)
    assert audit_dp.was_meant(["client-dp-100"]) and audit_dp.was_meant(["some.yaml"])
    assert not audit_dp.was_meant([str(tmp_path)]) and not audit_dp.was_meant(["client-dp-1000000000"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPRINT_ROOT", raising=False)
    assert not audit_dp.was_meant(["client-dp-100"])
