"""Analyses on the page: merged into the measurements, apart from the main tables, drawn where they exist."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from analysis_report_cases import add_analyses, all_analyses, analysis_row
from report_cases import write_evaluations

from fedprint.evaluation.rows import Row, read_measurements
from fedprint.reports.figures.analyses import draw_rows, epoch_matrix, layer_bubbles
from fedprint.reports.figures.drawing import style
from fedprint.reports.figures.panels import plain, points_of
from fedprint.reports.numbers.evaluations import final_analyses, final_rows
from fedprint.reports.pages.federation import ReportSummary, write_report
from fedprint.reports.pages.sections import TEXTS, analysis_sections
from fedprint.reports.tables.analyses import result_table

Write = Callable[..., list[Path]]


def _report(folders: list[Path], out: Path) -> ReportSummary:
    return write_report(experiment="demo", title="Demo", config_text="a: 1\n", evaluations=folders, out=out)


def _with_analyses(folders: list[Path]) -> list[Path]:
    for folder in folders:
        prior, seed = folder.name.split("-")
        add_analyses(folder, all_analyses(prior, int(seed)))
    return folders


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], ReportSummary]:
    """Return evaluations of two priors with analyses, and their report."""
    base = tmp_path_factory.mktemp("analysed")
    folders = _with_analyses(write_evaluations(base, ("random", "chrono")))
    return folders, _report(folders, base / "report")


def test_main_tables_and_headline_do_not_change_by_analyses(
    evaluations: Write, analysed: tuple[list[Path], ReportSummary], tmp_path: Path
) -> None:
    before, after = _report(evaluations(("random", "chrono")), tmp_path / "before"), analysed[1]
    assert (after.update, after.device, after.utility) == (before.update, before.device, before.utility)
    rows = [read_measurements(report.page.parent / "measurements.jsonl") for report in (before, after)]
    assert [{**row, "analysis": None} for row in rows[0]] == [
        {key: row.get(key) for key in {**rows[0][0], "analysis": None}} for row in final_rows(rows[1])
    ]
    pages = [report.page.read_text() for report in (before, after)]
    upper, lower = ('<h2 id="recognition">', '<h2 id="claims">')
    assert len({page[page.index(upper) : page.index(lower)] for page in pages}) == 1


def test_every_analysis_has_a_section_and_its_files(analysed: tuple[list[Path], ReportSummary]) -> None:
    out = analysed[1].page.parent
    page = (out / "index.html").read_text()
    measured = {row["analysis"] for row in all_analyses()}
    for name in measured:
        assert f'href="#analysis-{name}"' in page
        assert f'id="analysis-{name}"' in page
        assert (out / "tables" / f"{name}.csv").is_file()
    for name in ("prior-examples", "training-updates", "layers", "epochs", "users", "open-world", "data-space"):
        assert (out / "figures" / f"{name}.png").is_file()
        caption = re.search(rf'id="{name}".*?<figcaption>(.*?)</figcaption>', page, re.DOTALL)
        assert caption is not None
        assert all(word in caption[1] for word in ("chance", "interval", "users")), caption[1]
    positions = [page.index(f'id="analysis-{name}"') for name in TEXTS if name in measured]
    assert positions == sorted(positions)


def test_seeds_of_analyses_are_pooled(evaluations: Write, tmp_path: Path) -> None:
    out = _report(_with_analyses(evaluations(("random",), (0, 1, 2))), tmp_path / "report").page.parent
    rows = read_measurements(out / "measurements.jsonl")
    final = final_analyses(rows)
    assert {row["seed"] for row in final} == {"all"}
    assert len(final) == len(all_analyses())
    assert {row["config_hash"] for row in final} == {"1f0c9a2b77de"}


def test_seeds_with_other_attackers_are_pooled_as_the_selected_one(evaluations: Write, tmp_path: Path) -> None:
    folders = evaluations(("random",), (0, 1))
    for folder, attack, value in zip(folders, ("ridge", "mlp-tuned"), (0.4, 0.6), strict=True):
        seed = int(folder.name[-1])
        row = analysis_row("training-updates", value, training_updates=1, attack=attack, seed=seed)
        add_analyses(folder, [row])
    rows = read_measurements(_report(folders, tmp_path / "r").page.parent / "measurements.jsonl")
    (row,) = final_analyses(rows)
    assert (row["attack"], row["value"]) == ("selected", pytest.approx(0.5))


def test_without_analyses_there_is_no_section(evaluations: Write, tmp_path: Path) -> None:
    page = _report(evaluations(), tmp_path / "report").page
    assert 'id="analyses"' not in page.read_text()
    assert not (page.parent / "tables").exists()
    assert draw_rows([]) == {}


def test_an_analysis_nobody_knows_gets_a_table_of_its_own_keys() -> None:
    rows = [analysis_row("brand-new", 0.1 * i, colour=name, deep={"a": i}) for i, name in enumerate(("red", "blue"))]
    (section,) = analysis_sections(rows)
    assert (section.title, section.drawings) == ("Brand new", ())
    assert section.tables[0].labels == ("prior", "colour", "deep", "attack")
    assert [line.labels[1] for line in section.tables[0].lines] == ["blue", "red"]


def test_rows_that_lack_their_key_or_value_draw_nothing() -> None:
    rows: list[Row] = [analysis_row(name, 0.5) for name in ("layers", "epochs", "users", "prior-examples")]
    assert draw_rows(rows) == {}
    hollow = {**analysis_row("users", 0.5, options=10), "value": None, "lo": None, "hi": None}
    assert points_of([hollow], "options") == []


def test_repeats_of_a_place_are_averaged() -> None:
    rows = [analysis_row("users", value, options=10, repeat=i) for i, value in enumerate((0.2, 0.4))]
    (point,) = points_of(rows, "options")
    assert (point.value, point.lo, point.hi, point.n_questions) == pytest.approx((0.3, 0.27, 0.33, 2000))


def test_bubbles_name_layers_in_depth_order_with_their_parameters() -> None:
    rows = [row for row in all_analyses() if row["analysis"] == "layers"]
    with style():
        drawing = layer_bubbles(rows)
    assert drawing is not None
    assert "conv1 160, conv2 4,640, fc1 100,416, head 650" in drawing.caption
    text = drawing.svg.decode()
    assert [text.index(f">{name}<") for name in ("conv1", "conv2", "fc1", "head")] == sorted(
        text.index(f">{name}<") for name in ("conv1", "conv2", "fc1", "head")
    )


def test_a_matrix_with_holes_is_drawn() -> None:
    rows = [row for row in all_analyses() if row["analysis"] == "epochs" and row["test_bin"] != 3]
    with style():
        drawing = epoch_matrix(rows)
    assert drawing is not None
    assert "10 parts of training" in drawing.caption
    assert drawing.svg.decode().count(">80<") >= 1


def test_tables_put_the_metrics_of_a_condition_side_by_side() -> None:
    rows: list[dict[str, Any]] = [row for row in all_analyses() if row["analysis"] == "attributes"]
    table = result_table(rows, "attributes", "Attributes")
    assert table is not None
    assert set(table.heads) == {"top-1", "gain in top-1", "attribute: AP", "attribute: top-1"}
    (line,) = [line for line in table.lines if {"age", "together", "attribute"} <= set(line.labels)]
    present = {head for head, cell in zip(table.heads, line.cells, strict=True) if cell is not None}
    assert present == {"gain in top-1", "attribute: AP", "attribute: top-1"}


def test_csv_of_a_table_holds_the_interval_of_every_number(analysed: tuple[list[Path], ReportSummary]) -> None:
    with (analysed[1].page.parent / "tables" / "matching.csv").open() as file:
        lines = list(csv.DictReader(file))
    (strong,) = [line for line in lines if (line["attack"], line["prior"]) == ("match-strong", "random")]
    numbers = [float(strong[f"AP over pairs: {part}"]) for part in ("value", "lo", "hi", "chance")]
    assert numbers == pytest.approx([0.97, 0.94, 1.0, 0.5])


def test_equal_input_gives_equal_bytes(analysed: tuple[list[Path], ReportSummary], tmp_path: Path) -> None:
    folders, first = analysed
    one, two = first.page.parent, _report(folders, tmp_path / "again").page.parent
    files = [path.relative_to(one) for path in one.rglob("*") if path.is_file()]
    assert [str(name) for name in files if (one / name).read_bytes() != (two / name).read_bytes()] == []


def test_an_axis_counts_people_in_words() -> None:
    assert [plain(value) for value in (0.25, 7, 580, 10_000, 1_000_000, 2_500_000)] == [
        "0.25", "7", "580", "10,000", "1 million", "2.5 million",
    ]  # fmt: skip
