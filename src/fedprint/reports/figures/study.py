"""Figures of a study: where trials lie on the plane, which of them are on the front, and how the search went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedprint.evaluation.tradeoffs.tradeoff import pareto_front
from fedprint.reports.figures.drawing import INK, MUTED, PAPER, Drawing, finish, mark, percent_axis, style
from fedprint.reports.figures.panels import WIDTH, blank_figure, shared_legend
from fedprint.tuning.result import OperatingPoint, SearchResult
from fedprint.tuning.score import Finished

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = tuple[float, float]
"""Attack AP and normalised utility."""


def draw_study(ceiling: float, searches: Sequence[SearchResult], points: Sequence[OperatingPoint]) -> list[Drawing]:
    """Return the Pareto figure and the history; ``ceiling`` is an AP."""
    with style():
        return [pareto(ceiling, searches, points), history(searches)]


def draw_search(searches: Sequence[SearchResult]) -> list[Drawing]:
    """Return the history alone, for a study without a ceiling on the attack."""
    with style():
        return [history(searches)]


def pareto(ceiling: float, searches: Sequence[SearchResult], points: Sequence[OperatingPoint]) -> Drawing:
    """Draw all trials, each strategy's front, the ceiling, and the operating points with their intervals."""
    figure = blank_figure(WIDTH, 4.2)
    axes = figure.subplots()
    axes.axvline(ceiling, color=INK, lw=1.2, ls="--", label="ceiling")
    for position, search in enumerate(searches):
        colour, marker = mark(position)
        places = [place for trial in search.trials if (place := _place(trial)) is not None]
        if places:
            x, y = zip(*places, strict=True)
            axes.scatter(x, y, s=16, marker=marker, color=colour, alpha=0.45, lw=0)
            best = [places[position] for position in pareto_front(places)]
            axes.step(*zip(*best, strict=True), where="post", color=colour, lw=1.1, label=search.strategy)
    for position, search in enumerate(searches):
        for point in (point for point in points if point.strategy == search.strategy):
            _operating_point(axes, point.confirmation or point, *mark(position))
    axes.set_ylabel("utility, normalised to no defence")
    updates = max((point.updates for point in points), default=1)
    over = f" over {updates} linked updates" if updates > 1 else ""
    percent_axis(axes, "x", f"AP of the strongest adversary{over}")
    shared_legend(figure, [axes])
    return finish(
        figure,
        "pareto",
        "Trials and operating points",
        "Look at the large points left of the dashed line: of these the highest is the strategy to use.",
        "Small: trials on the search's seeds; steps: each strategy's Pareto front among them. Large with bars: the "
        "operating points on fresh seeds with 95 % intervals over seeds and users, filled when they keep below the "
        "ceiling (dashed) with their whole interval. They are of confirmation users where there are any, trials are of "
        "development users.",
    )


def history(searches: Sequence[SearchResult]) -> Drawing:
    """Draw the best feasible utility so far, trial by trial."""
    figure = blank_figure(WIDTH, 3.0)
    axes = figure.subplots()
    for position, search in enumerate(searches):
        colour, marker = mark(position)
        best: list[Place] = []
        for place, trial in enumerate(search.trials, 1):
            if trial.utility is None:
                continue
            face = colour if trial.feasible else PAPER
            axes.plot(place, trial.utility, marker, ms=4, color=colour, mfc=face, alpha=0.6, zorder=2)
            if trial.feasible and (not best or trial.utility > best[-1][1]):
                best.append((place, trial.utility))
        if best:
            best.append((len(search.trials), best[-1][1]))
            axes.step(*zip(*best, strict=True), where="post", color=colour, lw=1.5, label=search.strategy, zorder=3)
    axes.set_xlabel("trial")
    axes.set_ylabel("normalised utility")
    axes.axhline(1.0, color=MUTED, lw=1.0, ls=":")
    shared_legend(figure, [axes])
    return finish(
        figure,
        "history",
        "History of the search",
        "Look at the end of a line: one that still rises means that more trials would help.",
        "Every trial's utility, filled where it was feasible; the line: the best feasible one so far.",
    )


def _operating_point(axes: Axes, point: OperatingPoint, colour: str, marker: str) -> None:
    ap = point.linked_ap
    if ap is None or point.utility is None:
        return
    (left, right), (low, high) = point.intervals["linked_ap"], point.intervals["utility"]
    axes.plot([left, right], [point.utility] * 2, color=colour, lw=1.6, zorder=4)
    axes.plot([ap] * 2, [low, high], color=colour, lw=1.6, zorder=4)
    face = colour if point.feasible else PAPER
    axes.plot(ap, point.utility, marker, ms=9, color=colour, mfc=face, mew=1.6, zorder=5)


def _place(trial: Finished) -> Place | None:
    if trial.attack_ap is None or trial.utility is None or trial.state != "complete":
        return None
    return trial.attack_ap, trial.utility
