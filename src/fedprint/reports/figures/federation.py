"""The report's figures: plain values in, a :class:`Drawing` out, or None when there is nothing to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedprint.evaluation.rows import POOLED, Row, pool_seeds
from fedprint.reports.figures.drawing import (
    GRID,
    INK,
    MUTED,
    PAPER,
    SERIES,
    Drawing,
    finish,
    mark,
    percent_axis,
    person,
    style,
)
from fedprint.reports.figures.panels import WIDTH, blank_figure, counts
from fedprint.reports.figures.privacy import budget_note, diversity_curves
from fedprint.reports.numbers.evaluations import CONTROL, Evaluation, Scatter, read_scatter
from fedprint.reports.tables.federation import AttackTable, UtilityLine
from fedprint.reports.wording import LINKAGES, METRIC_TITLES, number, people

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UserRow = tuple[int, float, float]
"""User id, AP, chance: fractions."""


def draw_all(
    tables: Sequence[AttackTable], utility: Sequence[UtilityLine], evaluations: Sequence[Evaluation], prior: str
) -> tuple[Drawing, ...]:
    """Return every figure that the input has data for, in page order; ``prior`` is the headline's."""
    own = [item for item in evaluations if item.prior == prior]
    scatters = {item.prior: read_scatter(item) for item in reversed(evaluations)}
    with style():
        drawings = (
            ap_by_attacker(tables),
            utility_curves(evaluations, utility),
            diversity_curves(own),
            ap_by_user({linkage: pooled_users(own, linkage) for linkage in LINKAGES}, prior),
            ap_by_round(pooled_rounds(own), prior),
            scatter_plots({name: scatters[name] for name in reversed(scatters)}),
        )
    return tuple(drawing for drawing in drawings if drawing is not None)


def ap_by_attacker(tables: Sequence[AttackTable]) -> Drawing | None:
    """Draw AP with its interval by attacker (rows) and prior (colour and marker), one panel per linkage."""
    attacks = list(dict.fromkeys(line.attack for table in tables for line in table.lines))
    if not attacks:
        return None
    figure = blank_figure(WIDTH, 1.3 + 0.15 * len(attacks) * (1 + len(tables)))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, linkage in zip(panels, LINKAGES, strict=True):
        for position, table in enumerate(tables):
            _attack_dots(axes, table, attacks, linkage, position, len(tables))
        axes.set_title("One update at a time" if linkage == "update" else "All updates of a device pooled")
        axes.set_xlim(-0.02, 1.02)
        axes.grid(visible=False, axis="y")
        percent_axis(axes, "x", "average precision")
    chosen = {line.attack for table in tables for line in table.lines if line.chosen}
    panels[0].set_yticks(range(len(attacks)), [_shorten(name) for name in attacks])
    panels[0].set_ylim(len(attacks) - 0.5, -0.5)
    for tick, name in zip(panels[0].get_yticklabels(), attacks, strict=True):
        tick.set_fontweight("bold" if name in chosen else "normal")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(tables) + 1)
    return finish(
        figure,
        "ap-by-attacker",
        "Recognition by attacker and prior",
        "Look at the filled dots: how far right of the upright lines they lie is how much an update tells about its "
        "sender.",
        "Average precision (AP): rank all updates by how much they look like one user's; it is 100 % when that user's "
        "own come first. Bars: 95 % intervals over users. Filled: the attacker chosen on prior data; hollow: the "
        "others. The upright lines are chance, the expected AP of random scores for the same questions.",
    )


def utility_curves(evaluations: Sequence[Evaluation], lines: Sequence[UtilityLine]) -> Drawing | None:
    """Draw test utility over rounds per prior, beside the other ways of training; the loss where no utility exists."""
    priors = list(dict.fromkeys(item.prior for item in evaluations))
    key = "utility" if any(_series(item, "utility") for item in evaluations) else "loss"
    if not any(_series(item, key) for item in evaluations):
        return None
    figure = blank_figure(WIDTH, 2.9 if len(priors) > 1 else 3.3)
    panels = figure.subplots(1, len(priors), sharey=True, squeeze=False)[0]
    for axes, prior in zip(panels, priors, strict=True):
        curves = [points for item in evaluations if item.prior == prior and (points := _series(item, key))]
        for points in curves:
            axes.plot(*zip(*points, strict=True), color=SERIES[0], lw=1.6, zorder=3)
        for item in evaluations:
            if item.prior == prior and item.details.get("stopped_by_budget") and (points := _series(item, key)):
                axes.plot(*points[-1], "o", color=SERIES[0], ms=6, zorder=5)
        if key == "utility" and curves:
            _baselines(axes, [line for line in lines if line.prior == prior], max(points[-1][0] for points in curves))
        axes.set_title(_prior_title(prior))
        axes.set_xlabel("round")
    metric = str(evaluations[0].details.get("utility_metric", "utility"))
    name = METRIC_TITLES.get(metric, metric) if key == "utility" else "training loss"
    if key == "utility" and metric != "mae":
        percent_axis(panels[0], "y", name)
        panels[0].set_ylim(0, 1.08 * panels[0].get_ylim()[1])
    else:
        panels[0].set_ylabel("mean absolute error (stars)" if key == "utility" else name)
    return finish(
        figure,
        "utility-by-round",
        "What the training achieves",
        "Look at whether the curve has flattened by the last round: attacks on a model that still learns say little "
        "about a finished one.",
        f"{name[0].upper()}{name[1:]} of the global model on held-out data of all users, over the rounds of training"
        + (" (one line per seed); the bar at the end is the final model's 95 % interval over users." if key == "utility"
           else "; no utility was recorded during training.") + budget_note(evaluations),
    )  # fmt: skip


def ap_by_user(users: Mapping[str, Sequence[UserRow]], prior: str) -> Drawing | None:
    """Draw each user's AP, sorted, one panel per linkage, with the mean of the users' chance."""
    known = {linkage: sorted(rows, key=lambda row: -row[1]) for linkage, rows in users.items() if rows}
    if not known:
        return None
    figure = blank_figure(WIDTH, 2.7)
    panels = figure.subplots(1, len(known), sharey=True, squeeze=False)[0]
    for axes, (linkage, rows) in zip(panels, known.items(), strict=True):
        _user_bars(axes, rows)
        axes.set_title(LINKAGES[linkage].capitalize())
        axes.set_xlabel(f"{people(len(rows))}, most recognisable first")
    panels[0].set_ylim(0, 1.02)
    percent_axis(panels[0], "y", "average precision")
    return finish(
        figure,
        "ap-by-user",
        "Who is recognised",
        "Look at the left end and at the shape: a mean hides users who are recognised nearly always.",
        f"Average precision of each user ({prior} prior, chosen attacker); dashed: the mean of the users' chance. "
        + " ".join(f"{LINKAGES[linkage].capitalize()}: {_extremes(rows)}" for linkage, rows in known.items()),
    )


def ap_by_round(bins: Sequence[Row], prior: str) -> Drawing | None:
    """Draw AP among the updates of each bin of rounds with its interval, and chance in that bin."""
    if not bins:
        return None
    figure = blank_figure(WIDTH, 2.7)
    axes = figure.subplots()
    middle = [(row["first"] + row["last"]) / 2 for row in bins]
    axes.fill_between(middle, [r["lo"] for r in bins], [r["hi"] for r in bins], color=SERIES[0], alpha=0.18, lw=0)
    axes.plot(middle, [row["value"] for row in bins], color=SERIES[0], marker="o", ms=4)
    axes.plot(middle, [row["chance"] for row in bins], color=MUTED, ls="--", lw=1.2)
    axes.annotate(
        "chance", (middle[-1], bins[-1]["chance"]), (0, 4), textcoords="offset points", ha="right", color=MUTED
    )
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("round of the update")
    percent_axis(axes, "y", "average precision")
    return finish(
        figure,
        "ap-by-round",
        "When in training users are recognised",
        "Look at whether the line falls: it says whether late updates hide their sender better than early ones.",
        f"Average precision among the updates of {len(bins)} ranges of rounds ({prior} prior, chosen attacker, one "
        f"update at a time, {counts(bins)} updates each); band: 95 % interval over "
        "users. A range with fewer updates has a higher chance.",
    )


def scatter_plots(scatters: Mapping[str, Scatter | None]) -> Drawing | None:
    """Draw a t-SNE of a few users' updates per prior: colour = user, filled = prior device, hollow = anonymous."""
    known = {prior: scatter for prior, scatter in scatters.items() if scatter is not None and len(scatter.xy)}
    if not known:
        return None
    figure = blank_figure(WIDTH, 0.6 + WIDTH / max(len(known), 2))
    panels = figure.subplots(1, len(known), squeeze=False)[0]
    for axes, (prior, scatter) in zip(panels, known.items(), strict=True):
        _scatter(axes, scatter)
        axes.set_title(_prior_title(prior))
    users = max(len(set(scatter.user.tolist())) for scatter in known.values())
    return finish(
        figure,
        "update-tsne",
        "How updates lie beside one another",
        "Look for filled and hollow marks of one colour side by side: there an update gives its sender away.",
        f"t-SNE of the updates of {people(users)}. Colour and shape: the user; filled: the adversary's prior device, "
        "hollow: the user's anonymous device. Distances between far groups mean nothing in such a map.",
    )


def pooled_users(evaluations: Sequence[Evaluation], linkage: str) -> list[UserRow]:
    """Return each user's AP and chance, averaged over the seeds that asked about the user."""
    by_user: dict[int, list[Mapping[str, Any]]] = {}
    for item in evaluations:
        for row in item.details.get("by_user", {}).get(linkage, []):
            by_user.setdefault(int(row["user_id"]), []).append(row)
    return [(user, fmean(r["ap"] for r in rows), fmean(r["chance"] for r in rows)) for user, rows in by_user.items()]


def pooled_rounds(evaluations: Sequence[Evaluation]) -> list[Row]:
    """Return the bins of rounds as rows, pooled over seeds by the rule of the measurements; empty bins left out."""
    rows = [
        {"metric": "ap", "first": entry["first"], "last": entry["last"], "value": entry["ap"], "lo": entry["lo"],
         "hi": entry["hi"], "chance": entry["chance"], "n_questions": entry["n"], "n_users": 0, "seed": item.seed}
        for item in evaluations
        for entry in item.details.get("by_round", [])
        if entry["ap"] is not None
    ]  # fmt: skip
    pooled = [row for row in pool_seeds(rows) if row["seed"] == POOLED]
    return sorted(pooled or rows, key=lambda row: row["first"])


def _attack_dots(
    axes: Axes, table: AttackTable, attacks: Sequence[str], linkage: str, position: int, priors: int
) -> None:
    shift = 0.62 * ((position + 0.5) / priors - 0.5)
    colour, marker = mark(position)
    for line in table.lines:
        ap = line.by_linkage.get(linkage, {}).get("ap")
        if ap is None or ap.value is None or ap.lo is None or ap.hi is None:
            continue
        y = attacks.index(line.attack) + shift
        axes.plot([ap.lo, ap.hi], [y, y], color=colour, lw=1.6, solid_capstyle="round")
        axes.plot(ap.value, y, marker, color=colour, mfc=colour if line.chosen else PAPER, ms=5.5, mew=1.4)
        if ap.chance is not None:
            axes.plot([ap.chance] * 2, [y - 0.1, y + 0.1], color=INK, lw=1.2, zorder=1.5)
    axes.plot([], [], marker, color=colour, ms=5.5, label=_prior_title(table.prior))
    if position == priors - 1:
        axes.plot([], [], "|", color=INK, ms=8, mew=1.2, label="chance")


def _baselines(axes: Axes, lines: Sequence[UtilityLine], last: float) -> None:
    looks = {
        "centralised": ("centralised", SERIES[1], "--", 4),
        "knn": ("10-NN", SERIES[2], "-.", -10),
        "median": ("median guess", SERIES[2], "-.", 4),
        "chance": ("chance", MUTED, ":", 4),
    }
    for line in lines:
        utility = line.estimate
        if utility.metric == "mae_gain_over_median" or (utility.metric, line.training) == ("mae", "chance"):
            continue  # uniform guesses err so much that their line would flatten the curve; the table has them
        if utility.value is not None and line.training in looks:
            label, colour, dash, shift = looks[line.training]
            axes.axhline(utility.value, color=colour, ls=dash, lw=1.2)
            axes.annotate(
                label,
                (0.98, utility.value),
                (0, shift),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                color=colour,
                fontsize=8,
            )
        elif line.training == "federated" and utility.lo is not None and utility.hi is not None:
            axes.plot([last, last], [utility.lo, utility.hi], color=SERIES[0], lw=4, solid_capstyle="round", zorder=4)


def _user_bars(axes: Axes, rows: Sequence[UserRow]) -> None:
    values = [row[1] for row in rows]
    if len(rows) > 80:  # gaps between bars would be thinner than a pixel and shimmer
        edges = [position - 0.5 for position in range(len(rows) + 1)]
        axes.stairs(values, edges, fill=True, color=SERIES[0], lw=0, zorder=2)
    else:
        axes.bar(range(len(rows)), values, width=0.78, color=SERIES[0], lw=0, zorder=2)
    axes.axhline(fmean(row[2] for row in rows), color=INK, ls="--", lw=1.1, zorder=3)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_xticks([])
    axes.grid(visible=False, axis="x")


def _scatter(axes: Axes, scatter: Scatter) -> None:
    users = sorted(set(scatter.user.tolist()))
    for position, user in enumerate(users):
        colour, marker = person(position)
        for role, face in ((1, colour), (0, "none")):
            x, y = scatter.xy[(scatter.user == user) & (scatter.role == role)].T
            # Thousands of vector markers make a page slow; pixels are enough there.
            axes.plot(x, y, marker, color=colour, mfc=face, ms=4.2, mew=0.9, ls="", rasterized=len(scatter.xy) > 2500)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    for spine in axes.spines.values():
        spine.set(visible=True, color=GRID)


def _series(item: Evaluation, key: str) -> list[tuple[int, float]]:
    return [(entry["round"], entry[key]) for entry in item.details.get("history", []) if entry.get(key) is not None]


def _extremes(rows: Sequence[UserRow]) -> str:
    best, worst = rows[0], rows[-1]
    return (
        f"user {best[0]} most (AP {number(best[1], 'fraction')} %), user {worst[0]} least "
        f"({number(worst[1], 'fraction')} %), chance {number(fmean(row[2] for row in rows), 'fraction')} %."
    )


def _prior_title(prior: str) -> str:
    return "iid control" if prior == CONTROL else f"{_shorten(prior)} prior"


def _shorten(name: str, length: int = 22) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"
