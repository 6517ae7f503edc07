"""The privacy-utility plane as a figure: a panel per adversary, a curve per strategy, the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedprint.evaluation.rows import Row
from fedprint.reports.figures.drawing import INK, MARKERS, MUTED, SERIES, Drawing, finish, percent_axis, style
from fedprint.reports.figures.panels import WIDTH, blank_figure, number_axis, shared_legend
from fedprint.reports.numbers.plane import Entry, front, measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (*SERIES, "#332288", "#117733", "#882255")

Look = tuple[str, str, str]


def draw_plane(adversaries: Sequence[str], entries: Sequence[Entry]) -> list[Drawing]:
    """Return the figure of the plane; the undefended entry comes first."""
    with style():
        return [plane(adversaries, entries)]


def plane(adversaries: Sequence[str], entries: Sequence[Entry]) -> Drawing:
    """Draw every point with its intervals; curves follow the strength."""
    figure = blank_figure(WIDTH, 4.6)
    panels = figure.subplots(1, len(adversaries), sharey=True, squeeze=False)[0]
    for axes, adversary in zip(panels, adversaries, strict=True):
        _panel(axes, adversary, entries)
    panels[0].set_ylabel("utility, normalised to no defence")
    shared_legend(figure, panels)
    return finish(
        figure,
        "plane",
        "Privacy-utility plane",
        "Look at the top left: points there protect and keep the model useful. A curve that moves right from one panel "
        "to the next protects only from an adversary who does not know the defence.",
        "Utility against AP over chance of the chosen attacker on single updates, one panel per adversary. Points of a "
        "curve are strengths, bars 95 % intervals over seeds and users. Grey steps: the Pareto front. Dotted: chance. "
        "Without a defence all adversaries know the same, and differ at most in the settings that they try.",
    )


def draw_linked(curves: Mapping[str, Sequence[tuple[int, Row]]], kept: float, adversary: str) -> Drawing:
    """Draw AP over the number of linked updates, a line per point of the plane; the first is without a defence."""
    with style():
        figure = blank_figure(WIDTH, 4.2)
        axes = figure.subplots()
        for position, (name, points) in enumerate(curves.items()):
            colour, marker, line = (INK, "h", "-") if position == 0 else look(position - 1)
            x, rows = [count for count, _ in points], [row for _, row in points]
            axes.vlines(x, [row["lo"] for row in rows], [row["hi"] for row in rows], color=colour, lw=1.0, alpha=0.5)
            axes.plot(x, [row["value"] for row in rows], line, color=colour, marker=marker, ms=5, lw=1.2, label=name)
        levels = [(count, row["chance"]) for count, row in next(iter(curves.values()))]
        axes.plot(*zip(*levels, strict=True), color=MUTED, ls=":", lw=1.4, label="chance")
        number_axis(axes, sorted({float(count) for points in curves.values() for count, _ in points}), log=True)
        axes.set_xlabel("linked updates of a device")
        axes.set_ylim(0, 1.03)
        percent_axis(axes, "y", "average precision")
        shared_legend(figure, [axes])
        return finish(
            figure,
            "linked",
            "What is left after many rounds",
            "Look at the right end: a defence that hides one update may hide nothing once 30 updates are linked.",
            f"AP of the {adversary} adversary with the attack chosen on prior data, by the number of a device's "
            f"updates that it links: no defence, and each strategy's safest strength that keeps {100 * kept:.0f} % of "
            "the utility. Bars: 95 % intervals over seeds and users.",
        )


def _panel(axes: Axes, adversary: str, entries: Sequence[Entry]) -> None:
    plain = entries[0]
    best = front(entries, plain, adversary)
    corners = [(entry.over_chance(adversary)["value"], entry.utility(plain)["value"]) for entry in best]
    axes.step(*zip(*corners, strict=True), where="post", color=MUTED, lw=5, alpha=0.3, zorder=1)
    for position, strategy in enumerate(dict.fromkeys(e.strategy for e in entries if e.strategy)):
        curve = [entry for entry in measured(entries) if entry.strategy == strategy]
        _curve(axes, sorted(curve, key=lambda e: e.strength or 0.0), plain, adversary, str(strategy), look(position))
    _curve(axes, [plain], plain, adversary, "no defence", (INK, "h", "-"))
    axes.axvline(1.0, color=MUTED, lw=1.2, ls=":")
    axes.set_xlim(left=0)
    axes.set_title(f"{adversary} adversary")
    axes.set_xlabel("AP over chance")


def look(position: int) -> Look:
    """Return colour, marker and line of a curve; 56 differ."""
    line = "-" if position < len(COLOURS) else "--"
    return COLOURS[position % len(COLOURS)], MARKERS[position % len(MARKERS)], line


def _curve(axes: Axes, entries: Sequence[Entry], plain: Entry, adversary: str, label: str, shown: Look) -> None:
    if not entries:
        return
    colour, marker, line = shown
    across = [entry.over_chance(adversary) for entry in entries]
    up = [entry.utility(plain) for entry in entries]
    x, y = [row["value"] for row in across], [row["value"] for row in up]
    axes.hlines(y, [r["lo"] for r in across], [r["hi"] for r in across], color=colour, lw=1.0, alpha=0.5, zorder=2)
    axes.vlines(x, [r["lo"] for r in up], [r["hi"] for r in up], color=colour, lw=1.0, alpha=0.5, zorder=2)
    axes.plot(x, y, line, color=colour, marker=marker, ms=5, lw=1.2, label=label, zorder=3)
