"""The report of an audit: the bound beside the promise, and a broken promise said first of all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedprint.evaluation.rows import COLUMNS, Row, read_measurements
from fedprint.reports.pages.audit import AuditHead, write_audit
from fedprint.reports.pages.terminal import summary_table

HEAD = AuditHead(
    name="audit-demo", title="An <audit>", dataset="albums", prior="random", seeds=(0, 3), fast=True, config_hash="abc"
)  # fmt: skip
ROW: Row = dict.fromkeys(COLUMNS) | {
    "metric": "epsilon_lower", "unit": "nats", "value": 0.5, "n_questions": 14, "n_users": 20,
}  # fmt: skip


def audit(bound: float, promised: float | None) -> dict[str, Any]:
    holds = promised is None or bound <= promised
    return {
        "bound": bound, "confidence": 0.95, "rounds": 2, "q": [0.5, 0.5], "canaries": 20, "included": 11,
        "guesses": 14, "correct": 12, "tight": bound + 0.5, "accuracy": 0.75, "holds": holds,
        "verdict": "No sign." if holds else "BROKEN: a fault.",
        "accounted": {"value": promised, "delta": 0.01, "accountant": "prv", "sampling": "poisson",
                      "adjacency": "zero-out", "not_covered": ["the choice of the settings"]},
    }  # fmt: skip


def written(out: Path, *audits: dict[str, Any]) -> str:
    write_audit(head=HEAD, audits=audits, pooled=1.5, rows=[ROW], config_text="seeds: [0, 3]\n", out=out)
    return (out / "index.html").read_text(encoding="utf-8")


def test_the_page_has_both_epsilons_of_every_seed(tmp_path: Path) -> None:
    page = written(tmp_path / "report", audit(0.25, 7.99), audit(0.5, None))
    assert "show an epsilon of at least 0.50 at delta 0.01, with confidence 95 % (the largest of 2 seeds)." in page
    assert "The epsilon accounted for is infinite." in page and page.count("<p>No sign.</p>") == 1
    assert "An &lt;audit&gt;" in page and "small settings" in page and "broken" not in page
    assert "epsilon is at least 1.00, and 1.50 by the guesses of all 2 runs together." in page
    assert "7.99" in page and "14, 12 right" in page and "20 (11 took part)" in page
    assert {path.name for path in (tmp_path / "report").rglob("*") if path.is_file()} == {
        "index.html", "summary.json", "config.yaml", "measurements.jsonl", "measurements.csv", "audits.csv",
        "epsilon.svg", "epsilon.png", "plotly.min.js",
    }  # fmt: skip
    assert len(read_measurements(tmp_path / "report" / "measurements.jsonl")) == 1


def test_a_broken_promise_is_marked_and_the_terminal_reads_the_summary(tmp_path: Path) -> None:
    page = written(tmp_path / "report", audit(9.0, 7.99), audit(0.5, 7.99))
    assert "1 broken" in page and "BROKEN: a fault." in page
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert summary["audit"] == "audit-demo" and [one["holds"] for one in summary["audits"]] == [False, True]
    assert summary_table(tmp_path / "report").row_count == 2


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    assert written(tmp_path / "one", audit(0.5, 1.0), audit(0.5, 1.0)) == written(
        tmp_path / "two", audit(0.5, 1.0), audit(0.5, 1.0)
    )
