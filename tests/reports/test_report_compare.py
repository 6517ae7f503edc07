"""Two reports side by side, and the headline in the terminal."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import report_cases
from rich.console import Console

from fedprint.reports.pages.compare import write_comparison
from fedprint.reports.pages.federation import write_report
from fedprint.reports.pages.terminal import summary_table
from fedprint.types import FedprintError

Write = Callable[..., list[Path]]
ALL = ("random", "chrono", "iid")


def _report(folders: list[Path], out: Path) -> Path:
    write_report(experiment=out.name, title=f"The {out.name} <b>", evaluations=folders, config_text="", out=out)
    return out


def test_comparison_matches_conditions_and_holds_both_intervals(evaluations: Write, tmp_path: Path):
    a = _report(evaluations(ALL), tmp_path / "a")
    b = _report(evaluations(priors=("random",), shift=-0.3, selected="mlp-tuned"), tmp_path / "b")
    page = write_comparison(a, b, tmp_path / "out").read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "out" / "comparison.csv").open(encoding="utf-8")))
    assert {row["prior"] for row in rows} == {"random"}
    first = rows[0]
    assert (first["attack"], first["linkage"], first["metric"]) == ("chosen attacker", "update", "ap")
    assert float(first["value_a"]) == pytest.approx(0.857)
    assert float(first["value_b"]) == pytest.approx(0.337)
    assert float(first["difference"]) == pytest.approx(-0.52)
    assert float(first["hi"]) - float(first["difference"]) == pytest.approx(math.hypot(0.04, 0.04))
    assert "<b>-52.0</b>" in page
    assert "Only in A: chrono: centralised; chrono: chance" in page
    assert "The a &lt;b&gt;" in page
    assert "http" not in page


def test_comparison_of_a_report_with_itself_finds_no_clear_difference(evaluations: Write, tmp_path: Path):
    a = _report(evaluations(priors=("random",)), tmp_path / "a")
    one = write_comparison(a, a, tmp_path / "one").read_bytes()
    assert b"<b>" not in one
    assert one == write_comparison(a, a, tmp_path / "two").read_bytes()


def test_a_report_without_a_defence_is_compared_with_a_defended_one(evaluations: Write, tmp_path: Path):
    a = _report(evaluations(priors=("random",)), tmp_path / "a")
    b = _report(evaluations(priors=("random",)), tmp_path / "b")
    table = b / "measurements.jsonl"
    rows = [{**json.loads(line), "defence": "noise"} for line in table.read_text(encoding="utf-8").splitlines()]
    both = [{**row, "adversary": adversary} for row in rows for adversary in ("naive", "adaptive")]
    table.write_text("".join(f"{json.dumps(row)}\n" for row in both), encoding="utf-8")
    write_comparison(a, b, tmp_path / "out")
    found = list(csv.DictReader((tmp_path / "out" / "comparison.csv").open(encoding="utf-8")))
    assert {row["adversary"] for row in found} == {"adaptive"}, "the adversary of headlines"
    assert {row["metric"] for row in found} >= {"ap", "accuracy"}


def test_comparison_refuses_folders_without_report_or_common_condition(evaluations: Write, tmp_path: Path):
    a = _report(evaluations(priors=("random",)), tmp_path / "a")
    with pytest.raises(FedprintError, match="holds no report"):
        write_comparison(a, tmp_path / "nothing", tmp_path / "out")
    b = _report(evaluations(priors=("chrono",)), tmp_path / "b")
    with pytest.raises(FedprintError, match="no condition in common"):
        write_comparison(a, b, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _text(folder: Path, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(summary_table(folder))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_terminal_shows_chosen_and_best_attacker_utility_and_path(evaluations: Write, tmp_path: Path):
    said = _text(_report(evaluations(selected="mlp-tuned"), tmp_path / "report"), width=160)
    line = next(line for line in said.splitlines() if "mlp-tuned" in line and "update" in line)
    assert "63.7\u00a0%" in line
    assert "[59.7, 67.7]" in line
    assert "1.7\u00a0%" in line
    assert "ridge (best on test data)" in said
    assert "centralised training 97.5" in said
    assert str(tmp_path / "report" / "index.html") in said


def test_terminal_calls_random_scores_no_best_attacker(
    evaluations: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(report_cases, "STRENGTH", {"chance": 0.0})
    said = _text(_report(evaluations(selected="chance"), tmp_path / "report"), width=160)
    assert "random  update   chance " in said and "best on test data" not in said


def test_terminal_fits_eighty_columns(evaluations: Write, tmp_path: Path):
    said = _text(_report(evaluations(), tmp_path / "r"), width=80)
    assert any("random" in line and "update" in line and "[81.7, 89.7]" in line for line in said.splitlines())


def test_terminal_names_a_folder_without_report(tmp_path: Path):
    with pytest.raises(FedprintError, match="fedprint run nothing"):
        summary_table(tmp_path / "nothing")
