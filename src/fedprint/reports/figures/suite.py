"""Small multiples of a suite: the same figure for every member, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fedprint.evaluation.rows import Row
from fedprint.reports.figures.analyses import CURVES, Curve
from fedprint.reports.figures.drawing import INK, PAPER, Drawing, finish, mark, percent_axis, style
from fedprint.reports.figures.panels import (
    WIDTH,
    attacks_of,
    blank_figure,
    chance_line,
    finish_panels,
    interval_line,
    number_axis,
    of_prior,
    points_of,
    priors_of,
    reading,
    shared_legend,
)
from fedprint.reports.numbers.evaluations import final_analyses, final_rows
from fedprint.reports.numbers.order import prior_title, strongest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEEN = Curve(
    analysis="open-world",
    key="seen_share",
    title="The open world",
    label="share of seen users",
    look="Look at the left end: how well users are named when the adversary knows few of the people.",
    caption="Average precision of naming seen users, by their share.",
    log=False,
)
LAYERS = Curve(
    analysis="layers",
    key="depth",
    title="Which layer gives users away",
    label="",
    look="Look at which layer is highest in each panel, and how few parameters it may have.",
    caption="Average precision from one layer alone, with the layer's number of parameters.",
)
PER_LINE = 4
LEAST_BUDGETS = 3
"""Fewer different epsilons make no curve."""


def draw_suite(rows: Sequence[Row]) -> tuple[Drawing, ...]:
    """Return the figures that compare members; ``rows`` are all measurements with their ``member``."""
    main, analyses = _by_member(rows, final_rows), _by_member(rows, final_analyses)
    with style():
        drawings = [recognition(main), accuracy_by_epsilon(main)]
        for curve in (*CURVES, SEEN, LAYERS):
            drawings.append(member_curves([row for row in analyses if row["analysis"] == curve.analysis], curve))
    return tuple(drawing for drawing in drawings if drawing is not None)


def recognition(rows: Sequence[Row]) -> Drawing | None:
    """Draw every attack's AP on single updates: a panel per member, colour and marker by prior."""
    rows = [row for row in rows if row["metric"] == "ap" and row.get("linkage") == "update" and row.get("attack")]
    if not rows:
        return None
    attacks, priors = attacks_of(rows), priors_of(rows)
    figure, panels = _member_panels(rows, 0.9 + 0.2 * len(attacks) * max(len(priors), 2) / 2)
    for member, axes in panels.items():
        for position, prior in enumerate(priors):
            here = [row for row in of_prior(rows, prior) if row["member"] == member]
            _dots(axes, here, attacks, position, len(priors))
        axes.set_yticks(range(len(attacks)), attacks)
        axes.set_ylim(len(attacks) - 0.5, -0.5)
        axes.set_xlim(-0.02, 1.02)
        axes.grid(visible=False, axis="y")
        percent_axis(axes, "x", "average precision")
    shared_legend(figure, panels.values())
    return finish(
        figure,
        "recognition",
        "Recognition by data set, attack and prior",
        "Look at the filled dots of a panel: how far right of the upright lines they lie is how much one update tells.",
        "Average precision of single updates with its 95 % interval over users; filled: the attacker chosen on prior "
        "data. The short upright line is chance.",
    )


def accuracy_by_epsilon(rows: Sequence[Row]) -> Drawing | None:
    """Draw what accuracy members reach at their epsilon, a line per number of devices.

    None below three epsilons, and where members of one number of devices and one epsilon differ in something else.
    """
    rows = [row for row in rows if row["metric"] == "accuracy" and row["training"] == "federated"]
    rows = [row for row in rows if row.get("epsilon") is not None and not row.get("analysis")]
    places = {(row["n_users"], float(f"{row['epsilon']:.3g}")) for row in rows}
    budgets = sorted({epsilon for _, epsilon in places})
    if len(budgets) < LEAST_BUDGETS or len(places) < len(rows):
        return None
    figure = blank_figure(WIDTH, 3.2)
    axes = figure.subplots()
    for position, users in enumerate(sorted({int(row["n_users"]) for row in rows})):
        here = [row for row in rows if row["n_users"] == users]
        interval_line(axes, points_of(here, "epsilon"), f"{2 * users:,} devices", position)
    chance_line(axes, points_of(rows, "epsilon"))
    number_axis(axes, budgets, log=True)
    axes.set_xlabel("epsilon of a device")
    finish_panels(figure, [axes], "accuracy")
    deltas = ", ".join(f"{delta:g}" for delta in sorted({float(row["delta"]) for row in rows}))
    return finish(
        figure,
        "accuracy-by-epsilon",
        "Accuracy by epsilon",
        "Look at where a line bends: a smaller epsilon than that is paid for with accuracy.",
        f"Test accuracy of the members at the epsilon that each spent, delta {deltas}. {reading(rows)}",
    )


def member_curves(rows: Sequence[Row], curve: Curve) -> Drawing | None:
    """Draw a curve of each member's strongest attack (by name, never by result), one line per prior."""
    rows = [row for row in rows if row["metric"] == curve.metric and isinstance(row.get(curve.key), int | float)]
    rows = [row for member in _members(rows) for row in strongest(r for r in rows if r["member"] == member)]
    if not rows:
        return None
    figure, panels = _member_panels(rows, 3.1 if curve is LAYERS else 2.6)
    for member, axes in panels.items():
        here = [row for row in rows if row["member"] == member]
        for prior in priors_of(here):
            position = priors_of(rows).index(prior)
            interval_line(axes, points_of(of_prior(here, prior), curve.key), prior_title(prior), position)
        chance_line(axes, points_of(here, curve.key))
        if curve is LAYERS:
            _name_layers(axes, here)
        else:
            number_axis(axes, sorted({float(row[curve.key]) for row in here}), curve.log)
            axes.set_xlabel(curve.label)
        axes.set_title(f"{member}: {here[0]['attack']}")
    finish_panels(figure, list(panels.values()), "average precision")
    return finish(figure, curve.analysis, curve.title, curve.look, f"{curve.caption} {reading(rows)}")


def _name_layers(axes: Axes, rows: Sequence[Row]) -> None:
    """Name the layers on the horizontal axis, the input on the left."""
    names = {int(row["depth"]): f"{row['layer']}\n{int(row['parameters']):,}" for row in rows}
    axes.set_xticks(sorted(names), [names[depth] for depth in sorted(names)], fontsize=7, rotation=45)


def _dots(axes: Axes, rows: Sequence[Row], attacks: Sequence[str], position: int, priors: int) -> None:
    colour, marker = mark(position)
    shift = 0.62 * ((position + 0.5) / priors - 0.5)
    for row in rows:
        y = attacks.index(row["attack"]) + shift
        axes.plot([row["lo"], row["hi"]], [y, y], color=colour, lw=1.5)
        face = colour if row.get("selected") is True else PAPER
        name = prior_title(row["prior"])
        axes.plot(row["value"], y, marker, color=colour, mfc=face, ms=4.5, mew=1.2, ls="", label=name)
        if row.get("chance") is not None:
            axes.plot([row["chance"]] * 2, [y - 0.12, y + 0.12], color=INK, lw=1.1, zorder=1.5)


def _member_panels(rows: Sequence[Row], height: float) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure with a panel per member, at most four beside one another, that share their vertical axis."""
    members = _members(rows)
    lines = -(-len(members) // PER_LINE)
    columns = -(-len(members) // lines)
    figure = blank_figure(WIDTH, 0.4 + height * lines)
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    for axes in panels[len(members) :]:
        axes.set_axis_off()
    for axes, member in zip(panels, members, strict=False):
        axes.set_title(member)
    return figure, dict(zip(members, panels, strict=False))


def _by_member(rows: Sequence[Row], final: Callable[[Sequence[Row]], list[Row]]) -> list[Row]:
    """Return the final rows; whether seeds are pooled is each member's own affair."""
    return [row for member in _members(rows) for row in final([row for row in rows if row["member"] == member])]


def _members(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["member"]) for row in rows))
