"""Exhibits on the page: figures and tables of what analyses show besides measurements."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from analysis_report_cases import add_analyses, all_exhibits, word_bias

from fedprint.reports.figures.exhibits import draw_exhibits
from fedprint.reports.numbers.evaluations import read_evaluations
from fedprint.reports.pages.federation import write_report
from fedprint.reports.tables.exhibits import tabulate_exhibits

Write = Callable[..., list[Path]]


def _with(folders: list[Path], exhibits: dict[str, object]) -> list[Path]:
    for folder in folders:
        add_analyses(folder, [], exhibits)
    return folders


def test_every_exhibit_is_drawn_or_listed_on_the_page(evaluations: Write, tmp_path: Path) -> None:
    folders = _with(evaluations(("random", "chrono", "iid")), all_exhibits())
    out = write_report(experiment="d", title="D", config_text="a: 1\n", evaluations=folders, out=tmp_path / "r")
    page = out.page.read_text()
    for name in all_exhibits():
        assert f'id="analysis-{name}"' in page
    figures = {path.stem for path in (out.page.parent / "figures").glob("*.png")}
    assert {"distances", "class-bias", "class-bias-chrono", "recognisable", "raw-features"} <= figures
    assert "class-bias-iid" not in figures
    tables = {path.stem for path in (out.page.parent / "tables").glob("*.csv")}
    assert {"recognisable-random", "recognisable-chrono", "profile-random"} <= tables
    assert "seven 30.0 % (all 10.0 %)" in page
    assert "guitar (3.2)" in page


def test_captions_say_what_is_shown_on_how_many(evaluations: Write) -> None:
    drawn = draw_exhibits(read_evaluations(_with(evaluations(), all_exhibits())))
    text = {name: drawings[0].caption for name, drawings in drawn.items()}
    assert "100 % [83, 100]" in text["distances"]
    assert "20 users" in text["distances"]
    assert "20 users" in text["recognisable"]
    assert "40 raw examples (pixels)" in text["raw-features"]
    assert all(re.search(r"chance", caption) for caption in text.values())


@pytest.mark.parametrize("shareable", [False, True])
def test_words_of_real_people_stay_out_unless_the_data_may_be_shared(evaluations: Write, shareable: bool) -> None:
    folders = evaluations(task="language_model", data={"shareable": shareable})
    tables = tabulate_exhibits(read_evaluations(_with(folders, {**all_exhibits(), **word_bias()})))
    shown = str(tables)
    assert ("lighthouse, harbour*" in shown) is shareable
    assert ("seven" in shown) is shareable
    assert ("guitar (3.2)" in shown) is shareable
    (line,) = tables["class-bias"][0].lines
    assert line.cells[:2] == ("80.0 %", "2"), "how many words both lists share is a number, not a word"


def test_nothing_exhibited_is_nothing_drawn(evaluations: Write) -> None:
    hollow = {"distances": {}, "class-bias": {"kind": "classes", "users": []}, "recognisable": {"reasons": {}},
              "raw-features": {"raw": []}, "profile": {"devices": []}, "unknown": {"a": 1}}  # fmt: skip
    found = read_evaluations(_with(evaluations(), hollow))
    assert (draw_exhibits(found), tabulate_exhibits(found)) == ({}, {})
