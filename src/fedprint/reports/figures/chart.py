"""A drawn figure as a Plotly chart, for readers who point at its marks: the same data, axes and colours.

Converted are lines, marks, their intervals, bars, bands, heat maps and the dotted lines across an axis. A figure of
pictures has no chart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"}
SYMBOLS |= {"X": "x", "x": "x-thin-open", "_": "line-ew-open", "|": "line-ns-open"}
DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
DIGITS = 6
"""Significant digits of a coordinate: a thousandth of a pixel."""
MANY = 2000
"""Number of marks from which on the graphics card draws them."""

Trace = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Segments:
    """The upright or level bars of one colour, as ends (n, 2, 2) of points (x, y)."""

    colour: str
    ends: np.ndarray

    def around(self, x: float, y: float) -> str:
        """Return the interval through a point as text, "" where there is none."""
        low, high = self.ends.min(axis=1), self.ends.max(axis=1)
        through = np.isclose(low, (x, y)) | ((low <= (x, y)) & (high >= (x, y)))
        flat = np.isclose(low, high)
        for i in np.flatnonzero(through.all(axis=1) & flat.any(axis=1)):
            along = 0 if flat[i, 1] else 1
            return f"<br>{_short(low[i, along])} to {_short(high[i, along])}"
        return ""


@dataclass(kw_only=True)
class _Chart:
    """What is collected: traces, the layout, and the names that the legend has already."""

    data: list[Trace] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=lambda: {"shapes": [], "annotations": []})
    named: set[str] = field(default_factory=set)
    legend: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def name_of(self, artist: Any, colour: str, marker: str) -> str:
        """Return the artist's name, or what the figure's legend calls its look."""
        name = str(artist.get_label())
        return self.legend.get((colour, marker), "") if name.startswith("_") else name


def chart_of(figure: Figure, themed: Mapping[str, str]) -> str | None:
    """Return the figure as the JSON of a Plotly chart; None where it holds pictures.

    ``themed`` maps a colour to the CSS variable that the page puts in its place. Equal figures give equal text.
    """
    if not figure.axes or any(axes.images for axes in figure.axes):
        return None
    chart = _Chart(legend=_legend(figure))
    width, height = figure.get_size_inches()
    chart.layout["ratio"] = round(float(height / width), 4)
    for number, axes in enumerate(_panels(figure), start=1):
        _add_axes(chart, axes, "" if number == 1 else str(number))
    text = json.dumps({"data": chart.data, "layout": chart.layout}, ensure_ascii=True, sort_keys=True)
    for colour, variable in themed.items():
        text = text.replace(f'"{colour}"', f'"{variable}"')
    return text.replace("<", "\\u003c")  # it stands inside a script element


def _legend(figure: Figure) -> dict[tuple[str, str], str]:
    """Return what the figure's legend calls a colour and marker."""
    from matplotlib.lines import Line2D

    pairs = [pair for legend in figure.legends for pair in zip(legend.legend_handles, legend.get_texts(), strict=True)]
    lines = [(handle, text) for handle, text in pairs if isinstance(handle, Line2D)]
    return {(_hex(line.get_color()), str(line.get_marker())): text.get_text() for line, text in lines}


def _panels(figure: Figure) -> list[Axes]:
    """Return the axes with data; a colour bar has none."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def _add_axes(chart: _Chart, axes: Axes, number: str) -> None:
    box = axes.get_position()
    here = {"xaxis": f"x{number}", "yaxis": f"y{number}"}
    across = _axis(axes.xaxis, "labelbottom") | {"domain": _numbers([box.x0, box.x1]), "anchor": f"y{number}"}
    upward = _axis(axes.yaxis, "labelleft") | {"domain": _numbers([box.y0, box.y1]), "anchor": f"x{number}"}
    chart.layout |= {f"xaxis{number}": across, f"yaxis{number}": upward}
    segments = [_segments(bars) for bars in _of_kind(axes.collections, "LineCollection")]
    below = chain(_bands(axes), _intervals(segments), _heat(axes), _bars(axes))
    for trace in chain(below, _lines(axes, segments, chart, number), _marks(axes, segments, chart)):
        chart.data.append(_once(chart, trace) | here)
    chart.layout["annotations"] += _notes(axes, *here.values())


def _notes(axes: Axes, xref: str, yref: str) -> Iterator[Trace]:
    """Yield the panel's title and the texts inside it."""
    box, title = axes.get_position(), axes.get_title(loc="left")
    if title:
        yield _note(title, box.x0, box.y1, "paper", "paper") | {"xanchor": "left", "yanchor": "bottom"}
    for text in axes.texts:
        if text.get_transform() == axes.transData and text.get_text():
            anchors = {"xanchor": text.get_horizontalalignment(), "yanchor": _vertical(text.get_verticalalignment())}
            x, y = text.get_position()
            yield _note(text.get_text(), float(x), float(y), xref, yref) | anchors


def _axis(axis: Axis, side: str) -> Trace:
    from matplotlib.ticker import FixedFormatter, FuncFormatter, PercentFormatter

    low, high = (float(end) for end in axis.get_view_interval())
    log = axis.get_scale() in ("log", "symlog") and low > 0
    found: Trace = {"title": {"text": axis.get_label_text()}, "type": "log" if log else "linear"}
    found["range"] = [float(np.log10(low)), float(np.log10(high))] if log else [low, high]
    formatter = axis.get_major_formatter()
    if isinstance(formatter, PercentFormatter):
        found |= {"tickformat": ".0%", "hoverformat": ".1%"}
        found["title"] = {"text": axis.get_label_text().removesuffix(" (%)")}
    elif isinstance(formatter, FixedFormatter | FuncFormatter):
        ticks = [float(tick) for tick in axis.get_majorticklocs()]
        found |= {"tickvals": ticks, "ticktext": [_plain(text) for text in formatter.format_ticks(ticks)]}
    shown = axis.get_tick_params().get(side, True)
    return found if shown and axis.get_ticklocs().size else found | {"showticklabels": False}


def _lines(axes: Axes, segments: Sequence[Segments], chart: _Chart, number: str) -> Iterator[Trace]:
    for line in axes.lines:
        x, y = (np.asarray(line.get_data()[i], dtype=float) for i in (0, 1))
        if line.get_transform() != axes.transData:
            upright = line.get_transform() == axes.get_xaxis_transform(which="grid")
            chart.layout["shapes"].append(_across(line, x, y, upright, number))
            continue
        style, marker = str(line.get_linestyle()), str(line.get_marker())
        drawn = [part for part, shown in (("lines", style in DASHES), ("markers", marker in SYMBOLS)) if shown]
        if drawn and len(x):
            colour = _hex(line.get_color())
            look: Trace = {"color": _hex(line.get_markerfacecolor()), "symbol": SYMBOLS.get(marker, "circle")}
            look |= {"size": 1.6 * line.get_markersize()}
            name = chart.name_of(line, colour, marker)
            yield {
                **_scatter(x, y, "+".join(drawn), name, segments, colour, line.get_alpha()),
                "line": {"color": colour, "dash": DASHES.get(style, "solid"), "width": 1.3 * line.get_linewidth()},
                "marker": look | {"line": {"color": _hex(line.get_markeredgecolor()), "width": 1.3}},
            }


def _across(line: Any, x: np.ndarray, y: np.ndarray, upright: bool, number: str) -> Trace:
    """Return a line across a whole panel, upright or level, as a shape."""
    ends = (
        {"x0": x[0], "x1": x[-1], "y0": 0.0, "y1": 1.0} if upright else {"x0": 0.0, "x1": 1.0, "y0": y[0], "y1": y[-1]}
    )
    refs = (f"x{number}", f"y{number} domain") if upright else (f"x{number} domain", f"y{number}")
    style = {"color": _hex(line.get_color()), "dash": DASHES.get(str(line.get_linestyle()), "solid")}
    style |= {"width": 1.3 * line.get_linewidth()}
    return {"type": "line", "xref": refs[0], "yref": refs[1], "line": style} | {k: float(v) for k, v in ends.items()}


def _marks(axes: Axes, segments: Sequence[Segments], chart: _Chart) -> Iterator[Trace]:
    from matplotlib.markers import MarkerStyle

    for points in _of_kind(axes.collections, "PathCollection"):
        if not len(points.get_offsets()):
            continue
        x, y = np.asarray(points.get_offsets(), dtype=float).T
        hollow = not len(points.get_facecolor())
        colours = [_hex(colour) for colour in (points.get_edgecolor() if hollow else points.get_facecolor())]
        path = points.get_paths()[0]
        known = (MarkerStyle(each).get_path() for each in SYMBOLS)
        symbol = next((s for s, one in zip(SYMBOLS.values(), known, strict=True) if len(one) == len(path)), "circle")
        first = colours[0] if len(set(colours)) == 1 else ""
        sizes = [round(1.5 * float(size) ** 0.5, 2) for size in points.get_sizes()]
        look = {"color": colours if len(colours) > 1 else colours[0], "symbol": symbol + "-open" * hollow}
        look |= {"size": sizes if len(sizes) > 1 else sizes[0]}
        yield {
            **_scatter(x, y, "markers", chart.name_of(points, first, ""), segments, first, points.get_alpha()),
            "marker": look,
        }


def _scatter(
    x: np.ndarray, y: np.ndarray, mode: str, name: str, segments: Sequence[Segments], colour: str, alpha: float | None
) -> Trace:
    """Return a trace of points, each with the interval that is drawn through it."""
    mine = [bars for bars in segments if bars.colour == colour]
    notes = [next((text for bars in mine if (text := bars.around(*point))), "") for point in zip(x, y, strict=True)]
    trace: Trace = {"type": "scattergl" if len(x) > MANY else "scatter", "mode": mode, "name": _plain(name)}
    trace |= {"x": _numbers(x), "y": _numbers(y), "showlegend": bool(name), "opacity": alpha or 1.0}
    trace["hovertemplate"] = f"{_plain(name)}<br>%{{x}}, %{{y}}%{{text}}<extra></extra>"
    return trace | {"text": notes if any(notes) else ""}


def _intervals(segments: Sequence[Segments]) -> Iterator[Trace]:
    for bars in segments:
        gap = np.full((len(bars.ends), 1, 2), np.nan)
        x, y = np.concatenate([bars.ends, gap], axis=1).reshape(-1, 2).T
        line = {"color": bars.colour, "width": 1.8}
        yield _quiet(x, y) | {"mode": "lines", "line": line, "opacity": 0.75}


def _bands(axes: Axes) -> Iterator[Trace]:
    for band in _of_kind(axes.collections, "FillBetweenPolyCollection"):
        x, y = np.asarray(band.get_paths()[0].vertices, dtype=float).T
        fill = {"fill": "toself", "line": {"width": 0, "color": _hex(band.get_facecolor()[0])}}
        yield _quiet(x, y) | fill | {"mode": "lines", "opacity": 0.3}


def _quiet(x: np.ndarray, y: np.ndarray) -> Trace:
    """Return a trace that says nothing and has no place in the legend."""
    return {"type": "scatter", "x": _numbers(x), "y": _numbers(y), "hoverinfo": "skip", "showlegend": False, "name": ""}


def _bars(axes: Axes) -> Iterator[Trace]:
    from matplotlib.container import BarContainer

    for bars in (each for each in axes.containers if isinstance(each, BarContainer)):
        boxes = [(b.get_x(), b.get_y(), b.get_width(), b.get_height(), _hex(b.get_facecolor())) for b in bars.patches]
        x, y, width, height, colours = zip(*boxes, strict=True)
        level = bars.orientation == "horizontal"
        along, start, size, thick = (y, x, width, height) if level else (x, y, height, width)
        middle = np.add(along, np.divide(thick, 2))
        places = {"y": _numbers(middle), "x": _numbers(size)} if level else {"x": _numbers(middle), "y": _numbers(size)}
        trace = {"type": "bar", "orientation": "h" if level else "v", "base": _numbers(start), "width": _numbers(thick)}
        name = "" if str(bars.get_label()).startswith("_") else _plain(str(bars.get_label()))
        yield trace | places | {"marker": {"color": list(colours)}, "name": name, "showlegend": bool(name)}


def _heat(axes: Axes) -> Iterator[Trace]:
    for mesh in _of_kind(axes.collections, "QuadMesh"):
        corners = np.asarray(mesh.get_coordinates(), dtype=float)
        steps = np.linspace(0, 1, 11)
        colours = [[float(step), _hex(mesh.cmap(float(step)))] for step in steps]
        low, high = mesh.get_clim()
        yield {
            "type": "heatmap", "x": _numbers(corners[0, :, 0]), "y": _numbers(corners[:, 0, 1]),
            "z": [_numbers(row) for row in np.ma.filled(np.ma.asarray(mesh.get_array(), dtype=float), np.nan)],
            "colorscale": colours, "zmin": low, "zmax": high, "showscale": False, "name": "", "showlegend": False,
        }  # fmt: skip


def _segments(bars: Any) -> Segments:
    ends = np.array([np.asarray(part, dtype=float)[[0, -1]] for part in bars.get_segments()])
    return Segments(colour=_hex(bars.get_edgecolor()[0]), ends=ends.reshape(-1, 2, 2))


def _once(chart: _Chart, trace: Trace) -> Trace:
    """Return the trace, named in the legend unless its name is there already; equal names hide and show together."""
    name = trace["name"]
    if not trace["showlegend"]:
        return trace
    shown = name not in chart.named
    chart.named.add(name)
    return trace | {"showlegend": shown, "legendgroup": name}


def _note(text: str, x: float, y: float, xref: str, yref: str) -> Trace:
    return {"text": _plain(text), "x": x, "y": y, "xref": xref, "yref": yref, "showarrow": False}


def _vertical(word: str) -> str:
    return {"center": "middle", "center_baseline": "middle", "baseline": "bottom"}.get(word, word)


def _plain(text: str) -> str:
    """Return text for Plotly, which reads some HTML in it: a name from a data set must stay text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "<br>")


def _hex(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return str(to_hex(colour))


def _numbers(values: Any) -> list[float | None]:
    """Return numbers for JSON, which knows no NaN."""
    array = np.asarray(values, dtype=float)
    return [float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None for value in array]


def _short(value: float) -> str:
    return f"{value:.3g}"


def _of_kind(artists: Iterable[Artist], kind: str) -> list[Any]:
    """Return the artists of a class of matplotlib's, which its stubs know only in part."""
    return [artist for artist in artists if type(artist).__name__ == kind]
