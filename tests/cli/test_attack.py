"""``fedprint attack``: other attacks on the updates of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from test_cli import _fedprint, _files
from tiny_project import TINY, Project, project_in

from fedprint.kinds import driver
from fedprint.kinds.requests import request_for


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Return a project with a run of ``tiny`` whose updates are kept."""
    with project_in(tmp_path_factory.mktemp("ran")) as project:
        path = project.root / "tiny.yaml"  # not below configs/: nothing for DVC
        path.write_text(yaml.safe_dump({**TINY, "analyses": []}))
        driver.run(request_for(project.root, str(path)), keep=True)
        yield project


def test_recorded_updates_are_attacked_again_without_retraining(
    ran: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = _files(ran.root / "work" / "cache" / "federate"), _files(ran.root / "reports")
    assert _fedprint(monkeypatch, "attack", "tiny", "--set", "attacks.1.k=1", "--out", str(tmp_path / "again")) == 0
    shown = capsys.readouterr().out
    assert "tiny random-0" in shown
    assert "(selected)" in shown
    assert all(name["name"] in shown for name in TINY["attacks"])
    assert (_files(ran.root / "work" / "cache" / "federate"), _files(ran.root / "reports")) == before
    assert list((tmp_path / "again").rglob("rows.jsonl"))


def test_other_settings_of_an_attack_have_a_folder_of_their_own(ran: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is given by name, file or folder."""
    for k, report in enumerate(("tiny", str(ran.root / "tiny.yaml"), "reports/tiny"), 1):
        assert _fedprint(monkeypatch, "attack", f"{report}/random-0", "--set", f"attacks.1.k={k}") == 0
    assert len(list((ran.root / "work" / "attacks").iterdir())) == 3


@pytest.mark.parametrize("assignment", ["federation.rounds=3", "data.bias=0", "seeds=[1]", "name=other"])
def test_attacking_again_refuses_settings_of_the_records(
    ran: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], assignment: str
) -> None:
    assert _fedprint(monkeypatch, "attack", "tiny", "--set", assignment) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "attacks, selection, evaluation" in error
    assert "fedprint run" in error


@pytest.mark.parametrize("name", ["nowhere", "tiny/iid-0", "tiny/random-9"])
def test_attacking_what_was_not_recorded_says_what_to_give(
    ran: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert _fedprint(monkeypatch, "attack", name) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and name.partition("/")[2] in error


@pytest.mark.parametrize("command", ["attack", "reconstruct"])
def test_an_address_without_a_cluster_to_run_on_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert _fedprint(monkeypatch, command, "tiny", "--address", "10.0.0.1:6379") == 2
    assert "--address 10.0.0.1:6379 needs --pool ray" in capsys.readouterr().err


@pytest.mark.slow
def test_an_attack_on_ray_finds_what_one_on_this_machine_finds(
    ran: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    rows = []
    for pool in ("local", "ray"):
        assert _fedprint(monkeypatch, "attack", "tiny", "--pool", pool, "--out", str(tmp_path / pool)) == 0
        rows.append((tmp_path / pool / "evaluation" / "rows.jsonl").read_bytes())
    assert rows[0] == rows[1]
