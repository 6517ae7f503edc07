"""Training under a privacy budget: where it ended, and how alike the clients were (client-dp, V_c and U_s)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedprint.reports.figures.drawing import SERIES, Drawing, finish
from fedprint.reports.figures.panels import WIDTH, blank_figure
from fedprint.reports.numbers.evaluations import Evaluation
from fedprint.reports.wording import for_a_user

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES: Mapping[str, tuple[str, str]] = {
    "between_clients_variance": ("Between-clients variance V_c", "variance over clients"),
    "update_scale": ("Update scale U_s", "square of the mean update"),
}
"""Metric of a round -> the panel's title and its axis."""


def diversity_curves(evaluations: Sequence[Evaluation]) -> Drawing | None:
    """Draw V_c and U_s by round, a line per seed, on a log scale; None where no round recorded them."""
    curves = {metric: [line for item in evaluations if (line := _line(item, metric))] for metric in CURVES}
    if not any(curves.values()):
        return None
    figure = blank_figure(WIDTH, 2.7)
    for axes, (metric, lines) in zip(figure.subplots(1, len(CURVES)), curves.items(), strict=True):
        _panel(axes, metric, lines)
    return finish(
        figure,
        "client-diversity",
        "How alike the clients are",
        "Look at whether the left line falls: clients become alike while they train. If it rises, they move apart.",
        "Left: the variance of a round's raw updates over its clients, averaged over parameters. Right: the mean "
        "squared entry of their plain mean. Both come from raw updates on the server: no guarantee covers them.",
    )


def budget_note(evaluations: Sequence[Evaluation]) -> str:
    """Say what training spent of privacy, and what the dot at the end of a curve is: there the budget ended it.

    Nothing without a guarantee.
    """
    private = [item for item in evaluations if item.details.get("budget")]
    if not private:
        return ""
    ended = next((item for item in private if item.details.get("stopped_by_budget")), None)
    spent = (ended or private[0]).details["budget"]
    of = f"{spent['accountant']}, {spent['sampling']} sampling, {spent['adjacency']}"
    of_user = for_a_user(spent.get("epsilon_user"))
    guarantee = f"epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g} ({of}; {of_user})"
    cost = f"{spent['rounds']} rounds and {spent['communication']} updates"
    stopped = f"The dot: here the budget ended the training, after {cost} that cost {guarantee}"
    said = stopped if ended else f"{cost}, as planned, cost {guarantee}"
    return f" {said}. Not covered: {spent['not_covered']}."


def _panel(axes: Axes, metric: str, lines: Sequence[Sequence[tuple[int, float]]]) -> None:
    title, label = CURVES[metric]
    for line in lines:
        axes.plot(*zip(*line, strict=True), color=SERIES[0], lw=1.2)
    axes.set_yscale("log")
    axes.set_title(title)
    axes.set_xlabel("round")
    axes.set_ylabel(label)


def _line(item: Evaluation, metric: str) -> list[tuple[int, float]]:
    """Return (round, value) of the rounds with a positive value: a log scale has no place for others."""
    return [(entry["round"], entry[metric]) for entry in item.details.get("history", []) if entry.get(metric, 0) > 0]
