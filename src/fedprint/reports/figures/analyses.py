"""Figures of analyses that are measurements: curves, layers, the matrix of epochs, the open world (papers.md 2.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from fedprint.evaluation.rows import Row
from fedprint.reports.figures.drawing import MUTED, PAPER, SERIES, Drawing, finish, mark, percent_axis, style
from fedprint.reports.figures.panels import (
    WIDTH,
    attack_lines,
    attacks_of,
    blank_figure,
    chance_line,
    counts,
    finish_panels,
    heat_map,
    number_axis,
    of_prior,
    points_of,
    prior_panels,
    priors_of,
    reading,
    shared_legend,
    span_of_levels,
)
from fedprint.reports.numbers.evaluations import of_headline
from fedprint.reports.numbers.order import prior_title
from fedprint.reports.wording import people

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A figure of one metric over one key; ``look`` and ``caption`` stand below it, ``log``: the key doubles."""

    analysis: str
    key: str
    title: str
    label: str
    look: str
    caption: str
    log: bool = True
    metric: str = "ap"


CURVES = (
    Curve(
        analysis="prior-examples",
        key="prior_examples",
        title="How many examples the adversary needs",
        label="prior examples per user",
        look="Look at the left end: how far one or two examples already lift a line above chance.",
        caption="Average precision by the number of examples of each user that the adversary knows (the last point: "
        "all it has).",
    ),
    Curve(
        analysis="training-updates",
        key="training_updates",
        title="How many updates the adversary needs",
        label="labelled updates per user",
        look="Look at where a line flattens: more labelled updates than that do not help the attack.",
        caption="Average precision by the number of prior updates per user that the attack learns from; users with "
        "fewer keep what they have.",
    ),
    Curve(
        analysis="linked",
        key="linked_updates",
        title="How many updates of a device the adversary can link",
        label="linked updates",
        look="Look at the right end: what is left to hide after that many rounds under one pseudonym.",
        caption="Average precision by the number of a device's updates, in order of time, whose scores the adversary "
        "averages.",
    ),
    Curve(
        analysis="users",
        key="options",
        title="Recognition among more users",
        label="users",
        look="Look at the gap to chance on the right: it is what remains when the crowd is largest.",
        caption="Average precision among random subsets of the users, as if nobody else had taken part (mean over the "
        "subsets of a size, and of their intervals).",
        log=False,
    ),
    Curve(
        analysis="crowds",
        key="options",
        title="What to expect among more users",
        label="users",
        look="Look at the far right for what is left among a million users, and at how well the prediction from a "
        "quarter of the users meets what was measured with all.",
        caption="Average precision from one update by the number of users: measured among random parts of them by an "
        "adversary who learnt from all, and predicted from how often wrong scores are as high as right ones.",
    ),
)


SIDE_CHANNELS = ("count", "ridge+sides")
"""Attacks on side channels that a figure shows beside the chosen attack."""


def draw_rows(rows: Sequence[Row]) -> dict[str, tuple[Drawing, ...]]:
    """Return the figures of every analysis that has rows, by analysis; ``rows`` are final rows of analyses."""
    opened = _of(rows, "open-world")
    with style():
        drawn: dict[str, list[Drawing | None]] = {
            **{curve.analysis: [ap_curve(_drawn(_of(rows, curve.analysis)), curve)] for curve in CURVES},
            "data-space": [data_space(_of(rows, "data-space"))],
            "layers": [layer_bubbles(_of(rows, "layers"))],
            "epochs": [epoch_matrix(_of(rows, "epochs"))],
            "open-world": [open_world(of_prior(opened, prior), prior) for prior in priors_of(opened)],
        }
    present = {name: tuple(each for each in drawings if each is not None) for name, drawings in drawn.items()}
    return {name: drawings for name, drawings in present.items() if drawings}


def _drawn(rows: Sequence[Row]) -> Sequence[Row]:
    """Return, of many attacks by several adversaries, those that count: chosen ones and side channels, the last one's.

    Other analyses have few attacks, all by one adversary. Of crowds there is a line per kind of number.
    """
    if any(row["analysis"] == "crowds" for row in rows):
        return [{**row, "attack": row["number"]} for row in rows if row["linkage"] == "update"]
    if not any(row["analysis"] == "linked" for row in rows):
        return rows
    return [row for row in of_headline(rows) if row["selected"] or row["attack"] in SIDE_CHANNELS]


def ap_curve(rows: Sequence[Row], curve: Curve) -> Drawing | None:
    """Draw the metric over the key with intervals and chance: one panel per prior, one line per attack."""
    rows = [row for row in rows if row["metric"] == curve.metric and isinstance(row.get(curve.key), int | float)]
    if not rows:
        return None
    figure, panels = prior_panels(rows)
    for prior, axes in panels.items():
        here = of_prior(rows, prior)
        attack_lines(axes, here, attacks_of(rows), curve.key)
        chance_line(axes, points_of(here, curve.key))
        number_axis(axes, sorted({float(row[curve.key]) for row in here}), curve.log)
        axes.set_xlabel(curve.label)
    finish_panels(figure, list(panels.values()), "average precision")
    return finish(figure, curve.analysis, curve.title, curve.look, f"{curve.caption} {reading(rows)}")


def data_space(rows: Sequence[Row]) -> Drawing | None:
    """Draw AP from sets of raw examples by the size of a set, beside AP from one update."""
    rows = [row for row in rows if row["metric"] == "ap"]
    sets = [row for row in rows if row.get("space") == "data" and isinstance(row.get("set_size"), int)]
    if not sets:
        return None
    figure, panels = prior_panels(sets)
    for prior, axes in panels.items():
        here = of_prior(sets, prior)
        attack_lines(axes, here, attacks_of(sets), "set_size", before="examples, ")
        updates = [row for row in of_prior(rows, prior) if row.get("space") == "update"]
        for position, row in enumerate(updates):
            colour = SERIES[(len(attacks_of(sets)) + position) % len(SERIES)]
            axes.axhspan(row["lo"], row["hi"], color=colour, alpha=0.15, lw=0)
            axes.axhline(row["value"], color=colour, lw=1.6, label=f"one update, {row['attack']}")
        chance_line(axes, points_of(here, "set_size"))
        number_axis(axes, sorted({float(row["set_size"]) for row in here}), log=True)
        axes.set_xlabel("raw examples in a set")
    finish_panels(figure, list(panels.values()), "average precision")
    return finish(
        figure,
        "data-space",
        "An update beside the raw examples themselves",
        "Look at where the rising line crosses the level one: an update says as much as that many raw examples.",
        "Average precision of naming the user from a set of raw examples, by its size; the level line with its band is "
        f"one update. {reading(sets)}",
    )


def layer_bubbles(rows: Sequence[Row]) -> Drawing | None:
    """Draw AP from each layer alone over its depth: one panel per prior, the bubble's area the layer's parameters."""
    rows = [row for row in rows if row["metric"] == "ap" and row.get("depth") is not None]
    if not rows:
        return None
    names = {int(row["depth"]): str(row["layer"]) for row in rows}
    figure, panels = prior_panels(rows, 3.3 if len(names) <= 8 else 3.9)
    largest = max(float(row["parameters"]) for row in rows)
    for prior, axes in panels.items():
        attacks = attacks_of(rows)
        for position, attack in enumerate(attacks):
            here = [row for row in of_prior(rows, prior) if row.get("attack") == attack]
            shift = 0.08 * (position - (len(attacks) - 1) / 2)
            _bubbles(axes, sorted(here, key=lambda row: int(row["depth"])), attack, shift, mark(position), largest)
        chance = [row["chance"] for row in of_prior(rows, prior) if row.get("chance") is not None]
        if chance:
            axes.axhline(fmean(chance), color=MUTED, ls=":", lw=1.4, label="chance")
        axes.set_xticks(sorted(names), [names[depth] for depth in sorted(names)], rotation=90 if len(names) > 5 else 0)
        axes.set_xlim(0.4, max(names) + 0.6)
        axes.grid(visible=False, axis="x")
    finish_panels(figure, list(panels.values()), "average precision")
    sizes = sorted({(int(row["depth"]), int(row["parameters"])) for row in rows})
    shown = ", ".join(f"{names[depth]} {parameters:,}" for depth, parameters in sizes) if len(sizes) <= 8 else ""
    return finish(
        figure,
        "layers",
        "Which layer gives users away",
        "Look at which layer is highest, and whether a small bubble is among the high ones: few parameters suffice.",
        "Average precision from one layer alone, from the input (left) to the output; the area of a bubble is the "
        f"layer's number of parameters{f' ({shown})' if shown else f' (at most {largest:,.0f})'}. {reading(rows)}",
    )


def epoch_matrix(rows: Sequence[Row]) -> Drawing | None:
    """Draw AP by the part of training that the attack learned from (rows) and was asked about (columns)."""
    rows = [row for row in rows if row["metric"] == "ap" and row.get("train_bin") is not None]
    if not rows:
        return None
    priors = priors_of(rows)
    size = 1 + max(max(int(row["train_bin"]), int(row["test_bin"])) for row in rows)
    figure = blank_figure(WIDTH, 0.9 + min(WIDTH / len(priors), 4.6))
    panels = figure.subplots(1, len(priors), squeeze=False)[0]
    meshes = []
    for axes, prior in zip(panels, priors, strict=True):
        meshes.append(heat_map(axes, _matrix(of_prior(rows, prior), size), "viridis", (0.0, 1.0)))
        edges = {int(row["test_bin"]): row for row in rows}
        marks = [str(edges[i].get("test_first", i)) if i in edges else "" for i in range(size)]
        axes.set_xticks(range(size), marks)
        axes.set_yticks(range(size), marks)
        axes.set_xlabel("asked: updates from round ...")
        axes.set_title(prior_title(prior))
    panels[0].set_ylabel("learned: updates from round ...")
    bar = figure.colorbar(meshes[0], ax=list(panels), shrink=0.7, pad=0.02)
    percent_axis(bar.ax, "y", "average precision")
    bar.outline.set_visible(False)
    levels = [row["chance"] for row in rows if row.get("chance") is not None]
    return finish(
        figure,
        "epochs",
        "Does it matter when in training an update was sent?",
        "Look at the corners off the diagonal: as bright as the diagonal means that old updates betray later ones.",
        f"Average precision in per cent when the attack learns from one of {size} parts of training and names the "
        f"updates of another ({people(max(int(row['n_users']) for row in rows))}, {counts(rows)} "
        f"updates per cell; chance {span_of_levels(levels)}, which depends on how many users sent updates in a part). "
        "The intervals stand in the table.",
    )


def open_world(rows: Sequence[Row], prior: str) -> Drawing | None:
    """Draw what changes with the share of users whose data the adversary knows: naming, detecting unseen, matching."""
    metrics = {
        "ap": "AP (seen users)",
        "ap_over_chance": "AP over chance",
        "top1": "top-1 (with “unseen”)",
        "unseen_auroc": "AUROC of “unseen”",
    }
    parts: list[tuple[str, Sequence[Row], str]] = [
        (title, [row for row in rows if row["metric"] == metric], metric) for metric, title in metrics.items()
    ]
    matching = [row for row in rows if row["metric"] == "matching_ap"]
    for subset in sorted({str(row.get("subset")) for row in matching}, reverse=True):
        asked = [row for row in matching if str(row.get("subset")) == subset]
        parts.append((f"matching AP ({subset} users)", asked, "matching_ap"))
    parts = [part for part in parts if part[1]]
    if not parts:
        return None
    attacks = attacks_of(rows)
    count = -(-len(parts) // 3)
    figure = blank_figure(WIDTH, 0.5 + 2.45 * count)
    panels = figure.subplots(count, 3, squeeze=False).ravel()
    for axes, (title, shown, metric) in zip(panels, parts, strict=False):
        _open_panel(axes, shown, attacks, metric)
        axes.set_title(title)
    for axes in panels[len(parts) :]:
        axes.set_axis_off()
    shared_legend(figure, panels)
    name = "open-world" if prior == "chrono" else f"open-world-{prior}"
    return finish(
        figure,
        name,
        f"The open world ({prior_title(prior)})",
        "Look at AUROC of “unseen” and at the left ends: can users without any prior data be told apart?",
        "A third of the users is held out for training; of the others the share on the horizontal axis is known to the "
        "adversary, and the rest has to be called unseen or matched. All values but ratios in per cent. "
        + reading(rows),
    )


def _matrix(rows: Sequence[Row], size: int) -> list[list[float | None]]:
    table: list[list[float | None]] = [[None] * size for _ in range(size)]
    for row in rows:
        table[int(row["train_bin"])][int(row["test_bin"])] = row["value"]
    return table


def _bubbles(axes: Axes, rows: Sequence[Row], attack: str, shift: float, look: tuple[str, str], largest: float) -> None:
    colour, marker = look
    x = [int(row["depth"]) + shift for row in rows]
    y = [float(row["value"]) for row in rows]
    sizes = [12 + 500 * float(row["parameters"]) / largest for row in rows]
    axes.plot(x, y, color=colour, lw=0.9, alpha=0.6, zorder=2)
    axes.vlines(x, [row["lo"] for row in rows], [row["hi"] for row in rows], color=colour, lw=1.5, zorder=3)
    # Not clipped: the bubble of an AP of 100 % reaches over the edge.
    axes.scatter(x, y, s=sizes, color=colour, alpha=0.28, lw=0, zorder=2, clip_on=False)
    axes.plot(x, y, marker, color=colour, mfc=PAPER, ms=4, zorder=4, label=attack)


def _open_panel(axes: Axes, rows: Sequence[Row], attacks: Sequence[str], metric: str) -> None:
    attack_lines(axes, rows, attacks, "seen_share")
    chance_line(axes, points_of(rows, "seen_share"))
    axes.set_xlim(-0.04, 1.04)
    percent_axis(axes, "x", "seen users")
    if metric == "ap_over_chance":
        axes.set_ylim(0, None)
        axes.set_ylabel("times chance")
    else:
        axes.set_ylim(0, 1.03)
        percent_axis(axes, "y", "")
        axes.set_ylabel("%")


def _of(rows: Sequence[Row], analysis: str) -> list[Row]:
    return [row for row in rows if row["analysis"] == analysis]
