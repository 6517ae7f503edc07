"""What the figures of analyses share: panels by prior, lines with intervals and chance, heat maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedprint.evaluation.rows import Row
from fedprint.reports.figures.drawing import MUTED, SERIES, mark, percent_axis
from fedprint.reports.numbers.evaluations import prior_rank
from fedprint.reports.numbers.order import attack_rank, prior_title
from fedprint.reports.wording import number, people

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.2
"""Inches of a full-width figure."""

DARK, LIGHT = "#10131a", "#fafafa"
"""Text on coloured cells, which keep their colours in dark mode."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One place of a curve: ``x``, the value with its interval, chance, and how much it rests on."""

    x: float
    value: float
    lo: float
    hi: float
    chance: float | None
    n_questions: int
    n_users: int


def blank_figure(width: float, height: float) -> Figure:
    """Return an empty figure (inches)."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def prior_panels(rows: Sequence[Row], height: float = 3.0) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure with a titled panel per prior of ``rows``, which share their vertical axis."""
    priors = priors_of(rows)
    figure = blank_figure(WIDTH, height)
    panels = figure.subplots(1, len(priors), sharey=True, squeeze=False)[0]
    for axes, prior in zip(panels, priors, strict=True):
        axes.set_title(prior_title(prior))
    return figure, dict(zip(priors, panels, strict=True))


def finish_panels(figure: Figure, panels: Sequence[Axes], label: str, top: float = 1.0) -> None:
    """Give panels that share an axis of fractions, up to ``top``, its label and limits, and the figure one legend."""
    panels[0].set_ylim(0, 1.03 * top)
    percent_axis(panels[0], "y", label)
    shared_legend(figure, panels)


def shared_legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """Name every line once, above the panels."""
    known = {}
    for axes in panels:
        known.update(dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)))
    if known:
        figure.legend(known.values(), known.keys(), loc="outside upper right", ncols=min(len(known), 6))


def points_of(rows: Sequence[Row], key: str) -> list[Point]:
    """Return the rows by ``key``, ascending; rows of one place (repeats, splits) as the mean of their numbers."""
    places: dict[float, list[Row]] = {}
    for row in rows:
        if row["value"] is not None:
            places.setdefault(float(row[key]), []).append(row)
    return [
        Point(
            x=x,
            value=fmean(row["value"] for row in same),
            lo=fmean(row["lo"] if row["lo"] is not None else row["value"] for row in same),
            hi=fmean(row["hi"] if row["hi"] is not None else row["value"] for row in same),
            chance=_mean([row["chance"] for row in same if row.get("chance") is not None]),
            n_questions=sum(int(row["n_questions"]) for row in same),
            n_users=max(int(row["n_users"]) for row in same),
        )
        for x, same in sorted(places.items())
    ]


def interval_line(axes: Axes, points: Sequence[Point], label: str, position: int) -> None:
    """Draw a line with interval bars in the look of its position in the legend."""
    if not points:
        return
    colour, marker = mark(position)
    dash = "-" if position < len(SERIES) else "--"
    x = [point.x for point in points]
    axes.vlines(x, [p.lo for p in points], [p.hi for p in points], color=colour, lw=1.4, alpha=0.75, zorder=2)
    axes.plot(x, [p.value for p in points], dash, color=colour, marker=marker, ms=4, lw=1.5, label=label, zorder=3)


def attack_lines(axes: Axes, rows: Sequence[Row], attacks: Sequence[str], key: str, before: str = "") -> None:
    """Draw a line over ``key`` per attack; ``before`` stands before their names."""
    for position, attack in enumerate(attacks):
        points = points_of([row for row in rows if row.get("attack") == attack], key)
        interval_line(axes, points, f"{before}{attack}", position)


def chance_line(axes: Axes, points: Sequence[Point]) -> None:
    """Draw what random scores would reach."""
    known = [(point.x, point.chance) for point in points if point.chance is not None]
    if known:
        x, y = [pair[0] for pair in known], [pair[1] for pair in known]
        axes.plot(x, y, color=MUTED, ls=":", lw=1.4, label="chance", marker="_" if len(known) == 1 else "", ms=14)


def number_axis(axes: Axes, values: Sequence[float], log: bool) -> None:
    """Mark the measured places on the horizontal axis, by powers of two when ``log``."""
    from matplotlib.ticker import NullLocator

    if log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    shown = _spaced(values) if log else values if len(values) <= 8 else values[:: -(-len(values) // 8)]
    axes.set_xticks(list(shown), [plain(value) for value in shown])


def plain(value: float) -> str:
    """Return a number as people write it: ``0.25``, ``10,000``, ``1 million``; below 100 with three digits at most."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} million"
    return f"{value:,.0f}" if value >= 10_000 else f"{value:g}" if value >= 100 else f"{value:.3g}"


def heat_map(axes: Axes, values: Sequence[Sequence[float | None]], colours: str, limits: tuple[float, float]) -> Any:
    """Draw a matrix of fractions, the first line on top, numbers in per cent in the cells; None stays empty."""
    import numpy as np
    from matplotlib import colormaps

    table = np.array([[np.nan if value is None else value for value in line] for line in values], dtype=float)
    edges = [np.arange(size + 1) - 0.5 for size in table.shape]
    mesh = axes.pcolormesh(edges[1], edges[0], table, cmap=colours, vmin=limits[0], vmax=limits[1])
    axes.set_ylim(edges[0][-1], edges[0][0])
    axes.grid(visible=False)
    if table.shape[1] > 14:
        return mesh
    for i, j in np.argwhere(np.isfinite(table)).tolist():
        share = (table[i, j] - limits[0]) / ((limits[1] - limits[0]) or 1.0)
        red, green, blue, _ = colormaps[colours](min(max(share, 0.0), 1.0))
        ink = DARK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else LIGHT
        axes.text(j, i, f"{100 * table[i, j]:.0f}", ha="center", va="center", fontsize=7, color=ink)
    return mesh


def reading(rows: Sequence[Row]) -> str:
    """Say what bars and the dotted line are, and how much the numbers rest on."""
    users = sorted({int(row["n_users"]) for row in rows})
    who = people(users[0]) if len(users) == 1 else f"{users[0]} to {people(users[-1])}"
    chance = [row["chance"] for row in rows if row.get("chance") is not None and row["unit"] == "fraction"]
    level = f" ({span_of_levels(chance)})" if chance else ""
    return f"Bars: 95 % intervals over users; dotted: chance{level}; {counts(rows)} questions, {who}."


def counts(rows: Sequence[Row]) -> str:
    """Return the number of questions, or from least to most."""
    return span([int(row["n_questions"]) for row in rows])


def span_of_levels(levels: Sequence[float]) -> str:
    """Return fractions from least to most in per cent."""
    return f"{span(levels, lambda level: number(level, 'fraction'))} %"


def span(values: Sequence[float], shown: Callable[[float], str] = str) -> str:
    """Return ``3 to 12``, or ``3`` where least and most look the same."""
    least, most = shown(min(values)), shown(max(values))
    return least if least == most else f"{least} to {most}"


def show_image(axes: Axes, picture: Any, highest: float) -> None:
    """Draw an image (c, h, w) with values from 0 to ``highest``; one channel is grey."""
    image = picture.transpose(1, 2, 0)
    grey = image[..., 0] if image.shape[2] == 1 else image
    axes.imshow(grey, cmap="gray", vmin=0, vmax=highest, interpolation="nearest")


def attacks_of(rows: Sequence[Row]) -> list[str]:
    """Return the attacks from chance to the strongest, others by name."""
    return sorted({str(row["attack"]) for row in rows}, key=attack_rank)


def priors_of(rows: Sequence[Row]) -> list[str]:
    """Return the priors in reading order."""
    return sorted({str(row["prior"]) for row in rows}, key=prior_rank)


def of_prior(rows: Sequence[Row], prior: str) -> list[Row]:
    """Return the rows of one prior."""
    return [row for row in rows if row["prior"] == prior]


def _spaced(values: Sequence[float]) -> list[float]:
    """Return the values without those too close below the next on a logarithmic axis."""
    last = max(values)
    return [value for value in values if value == last or value <= 0.75 * last]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
