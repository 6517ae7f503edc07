"""The client that the stages of dvc.yaml start: what it asks, what it shows, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_project import CHECKOUT, Project

from fedprint.cli import stage
from fedprint.lab.workers import shared


@pytest.fixture
def toys(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "tests" / "lab"))
    monkeypatch.setattr(stage, "FUNCTION", "toy_work:stage")
    monkeypatch.setattr(stage, "MODULES", ("toy_work",))
    monkeypatch.setattr(shared, "IDLE_S", 0.5)
    return project


def test_a_stage_gets_what_the_words_say_and_its_lines_and_last_progress_are_shown(
    toys: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.main(["attack", "quickstart", "random", "3"]) == 0
    call, progress = capsys.readouterr().out.splitlines()
    found = json.loads(call)
    assert Path(found.pop("address")).parent.name.startswith("fedprint-")
    assert found == {
        "stage": "attack", "experiment": "quickstart", "prior": "random", "seed": 3, "root": str(toys.root)
    }  # fmt: skip
    assert progress == "rounds 3/3  fast"
    assert stage.main(["report", "quickstart"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["prior"] is None


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [(["refused", "quickstart"], 2, "error: mend it"), (["crashed", "quickstart"], 1, "error: ValueError: a fault"),
     (["code", "quickstart"], 7, ""), (["attack"], 2, f"error: {stage.USAGE}"),
     (["attack", "quickstart", "random", "one"], 2, f"error: {stage.USAGE}")],
)  # fmt: skip
def test_it_ends_as_the_stage_does(
    toys: Project, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    assert stage.main(words) == code
    assert capsys.readouterr().err.strip() == said
