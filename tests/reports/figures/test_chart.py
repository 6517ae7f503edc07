"""A figure becomes a chart with the same numbers, names and intervals; text from a data set stays text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from fedprint.reports.figures.chart import MANY, chart_of
from fedprint.reports.figures.drawing import INK, SERIES, THEMED, finish, percent_axis
from fedprint.reports.figures.panels import blank_figure, interval_line, points_of, shared_legend


def _axes() -> Axes:
    return blank_figure(4, 2).subplots()


def _chart(axes: Axes, themed: dict[str, str] | None = None) -> dict[str, Any]:
    text = chart_of(axes.get_figure(), themed or {})
    assert text is not None
    return dict(json.loads(text))


def test_a_mark_says_its_value_and_the_interval_drawn_through_it() -> None:
    axes = _axes()
    rows = [
        {"k": 1, "value": 0.5, "lo": 0.25, "hi": 0.75, "chance": 0.1, "n_questions": 9, "n_users": 3},
        {"k": 3, "value": 0.9, "lo": 0.8, "hi": 1.0, "chance": 0.1, "n_questions": 9, "n_users": 3},
    ]
    interval_line(axes, points_of(rows, "k"), "ridge", 0)
    marks = next(trace for trace in _chart(axes)["data"] if trace["name"] == "ridge")
    assert (marks["x"], marks["y"]) == ([1, 3], [0.5, 0.9])
    assert marks["text"] == ["<br>0.25 to 0.75", "<br>0.8 to 1"]


def test_a_mark_has_no_interval_of_another_colour() -> None:
    axes = _axes()
    axes.vlines([1], [0.2], [0.8], color=SERIES[1])
    axes.plot([1, 2], [0.5, 0.6], "-", marker="o", color=SERIES[0], label="svm")
    assert next(trace for trace in _chart(axes)["data"] if trace["name"] == "svm")["text"] == ""


def test_axes_keep_scale_range_and_words() -> None:
    axes = _axes()
    axes.plot([1, 100], [0.1, 0.9], label="a")
    axes.set_xscale("log")
    axes.set_xlim(1, 1000)
    percent_axis(axes, "y", "average precision")
    axes.set_title("random prior", loc="left")
    layout = _chart(axes)["layout"]
    assert layout["xaxis"]["type"] == "log"
    assert layout["xaxis"]["range"] == [0, 3]
    assert layout["yaxis"]["title"]["text"] == "average precision"
    assert layout["yaxis"]["tickformat"] == ".0%"
    assert [note["text"] for note in layout["annotations"]] == ["random prior"]


@pytest.mark.parametrize("upright", [True, False])
def test_a_line_across_the_panel_is_one(upright: bool) -> None:
    axes = _axes()
    axes.plot([0, 1], [0, 1])
    (axes.axvline if upright else axes.axhline)(0.3)
    (shape,) = _chart(axes)["layout"]["shapes"]
    along, across = ("x", "y") if upright else ("y", "x")
    assert shape[f"{along}0"] == shape[f"{along}1"] == 0.3
    assert shape[f"{across}ref"].endswith("domain")


def test_bars_bands_and_heat_maps_keep_their_numbers() -> None:
    figure = blank_figure(6, 2)
    bars, band, heat = figure.subplots(1, 3)
    bars.barh([0, 1], [0.5, 0.7], label="share")
    band.fill_between([0, 1], [0.2, 0.2], [0.4, 0.6])
    heat.pcolormesh([0, 1, 2], [0, 1], np.array([[0.3, np.nan]]))
    found = {trace["type"]: trace for trace in json.loads(str(chart_of(figure, {})))["data"]}
    assert found["bar"]["x"] == [0.5, 0.7]
    assert found["bar"]["orientation"] == "h"
    assert found["heatmap"]["z"] == [[0.3, None]]
    assert max(found["scatter"]["y"]) == 0.6


def test_names_come_from_the_figures_legend_and_once() -> None:
    figure = blank_figure(6, 2)
    panels = figure.subplots(1, 2)
    for axes in panels:
        axes.plot([0, 1], [0, 1], marker="o", color=SERIES[0], label="ridge")
    shared_legend(figure, panels)
    found = json.loads(str(chart_of(figure, {})))["data"]
    assert [trace["name"] for trace in found] == ["ridge", "ridge"]
    assert [trace["showlegend"] for trace in found] == [True, False]


def test_text_of_a_data_set_stays_text() -> None:
    axes = _axes()
    axes.plot([0], [0], marker="o", label="</script><script>alert(1)</script>")
    axes.text(0, 0, "<img src=x onerror=alert(1)>")
    text = str(chart_of(axes.get_figure(), {}))
    assert "<" not in text
    found = json.loads(text)
    assert found["data"][0]["name"].startswith("&lt;/script")
    assert found["layout"]["annotations"][0]["text"].startswith("&lt;img")


def test_colours_follow_the_theme_and_equal_figures_are_equal() -> None:
    def drawn() -> str:
        axes = _axes()
        axes.plot([0, 1], [0, 1], color=INK)
        return str(chart_of(axes.get_figure(), THEMED))

    assert '"--ink"' in drawn()
    assert INK not in drawn()
    assert drawn() == drawn()


def test_pictures_have_no_chart() -> None:
    axes = _axes()
    axes.imshow(np.zeros((2, 2)))
    assert chart_of(axes.get_figure(), {}) is None
    assert finish(axes.get_figure(), "name", "title", "look", "caption").chart is None


def test_many_marks_are_left_to_the_graphics_card() -> None:
    axes = _axes()
    axes.scatter(np.arange(MANY + 1), np.arange(MANY + 1), s=4, color=SERIES[0])
    assert _chart(axes)["data"][0]["type"] == "scattergl"
