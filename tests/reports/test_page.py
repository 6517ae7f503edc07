"""The written report: complete, self-contained, honest and the same every time."""

from __future__ import annotations

from pathlib import Path

from fedprint.reports.page import write_report


def test_report_folder_has_everything(evaluations, tmp_path: Path):
    out = tmp_path / "report"
    summary = write_report(experiment="demo", title="Demo", evaluations=evaluations(), config_text="a: 1\n", out=out)
    assert summary.page == out / "index.html"
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    figures = ("ap-by-attacker", "utility-by-round", "ap-by-user", "ap-by-round", "update-tsne")
    assert names == {
        "index.html", "measurements.jsonl", "measurements.csv", "config.yaml", "summary.json",
        *(f"figures/{name}.{ending}" for name in figures for ending in ("png", "svg")),
    }  # fmt: skip
