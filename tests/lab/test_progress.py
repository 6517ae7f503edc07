"""Lines of progress where there is no terminal."""

from __future__ import annotations

import threading

import pytest

from fedprint.lab import progress
from fedprint.lab.progress import Board


def test_a_silent_job_leaves_a_line_now_and_then_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SILENT_S", 0.01)
    said = threading.Event()
    shown = Board._show

    def show(board: Board, final: bool = False) -> None:
        shown(board, final)
        said.set()

    with Board("reconstruct", 2) as board:
        board.running("writers", "reconstruct 0/8")
        monkeypatch.setattr(Board, "_show", show)
        assert said.wait(60)
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0] == "reconstruct 0/2  writers: reconstruct 0/8"
    assert printed.out == ""


def test_nothing_is_said_after_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_SILENT_S", 0.01)
    before = threading.active_count()
    with Board("run", 1):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert capsys.readouterr().err.splitlines()[-1].startswith("run 0/1")
