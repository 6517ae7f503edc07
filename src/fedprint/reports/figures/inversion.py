"""Figures of an inversion experiment: PPC curves, images of each region, tracing by participants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprint.evaluation.inversion.capability import LEAKED, Region, calibration, region
from fedprint.evaluation.rows import Row
from fedprint.reports.figures.drawing import INK, MARKERS, MUTED, SERIES, Drawing, finish, percent_axis, style
from fedprint.reports.figures.layers import layer_distributions
from fedprint.reports.figures.panels import WIDTH, blank_figure, shared_legend, show_image
from fedprint.reports.numbers.inversion import (
    ALIGNMENT,
    CUT,
    DEFENCES,
    GRADIENT,
    MAIN,
    RAW,
    STRAYED,
    InversionHead,
    Layers,
    Sample,
    Trail,
    rows_where,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REGIONS: tuple[Region, ...] = ("green", "white", "red")
REGION_COLOURS: Mapping[Region, str] = {"green": "#4f8a3c", "white": MUTED, "red": "#a52a1f"}
REGION_WORDS: Mapping[Region, str] = {"green": "green: |E_B| > |B|", "white": "white: artefacts", "red": "red: leaked"}
EXAMPLES = 5
FLOOR = 1e-12
"""Objectives below this are drawn here: a perfect match has no logarithm."""

LINEAR = 3.0
"""Panels with a larger distance are linear up to 1 and logarithmic beyond: raw errors have no upper end."""

ACCURACY, DISTANCE = SERIES[1], SERIES[0]
DISTANCES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("reconstruction", "reconstruction_rmse", {**RAW}),
    ("tracing", "tracing_accuracy", {"level": "participant"}),
    ("membership", "label_accuracy", {**GRADIENT}),
)


def draw_inversion(
    head: InversionHead,
    rows: Sequence[Row],
    samples: Sequence[Sample],
    trails: Sequence[Trail],
    layers: Layers | None,
) -> list[Drawing]:
    """Return the figures, in the order of the page."""
    with style():
        drawings = [
            *(ppc(head, rows, place) for place in _places(head)),
            *(region_images(head, samples, place) for place in _places(head)),
            tracing(head, rows),
            layer_distributions(layers) if layers and layers.quantiles else None,
            *(searches(head, trails, place) for place in _places(head)[:1]),
        ]
    return [drawing for drawing in drawings if drawing is not None]


def _places(head: InversionHead) -> list[tuple[str, str, int]]:
    """Return attack, network and batch of each pair of figures: every batch of the attack named first."""
    attack, network, batches = head.attacks[0]
    return [(attack, network, batch) for batch in batches]


def ppc(head: InversionHead, rows: Sequence[Row], place: tuple[str, str, int]) -> Drawing:
    """Draw accuracy and attack distance by the size of the perturbation, as the papers do (spn, figure 5)."""
    attack, network, batch = place
    figure = blank_figure(WIDTH, 6.4)
    panels = figure.subplots(len(DISTANCES), len(DEFENCES), sharex="col", squeeze=False)
    for name in REGIONS:  # for the legend, even where nothing lies in one
        panels[0][0].axvspan(0, 0, color=REGION_COLOURS[name], alpha=0.3, lw=0, label=REGION_WORDS[name])
    for line, (score, metric, keys) in enumerate(DISTANCES):
        for column, defence in enumerate(DEFENCES):
            axes = panels[line][column]
            if line == 0:
                axes.set_title(defence)
            asked = keys | ({"participants": head.participants} if metric == "tracing_accuracy" else {})
            curves = [_curve(rows, metric, asked, place, defence, adversary) for adversary in head.adversaries]
            x, _, errors = _curve(rows, "reconstruction_rmse", {**CUT}, place, defence, head.headline)
            for low, high, name in bands(x, errors):
                axes.axvspan(low, high, color=REGION_COLOURS[name], alpha=0.14, lw=0)
            _panel(axes, curves, head.adversaries)
            highest = max(1.05, *(max([*curve[2], 0.0]) * 1.05 for curve in curves))
            if highest > LINEAR:
                axes.set_yscale("symlog", linthresh=1.0)
            axes.set_ylim(0, highest)
        panels[line][0].set_ylabel(f"{score}:\naccuracy, distance")
    for axes in panels[-1]:
        axes.set_xlabel("log10(|B| / |E_B| + 1)")
    shared_legend(figure, panels.ravel())
    return finish(
        figure,
        f"ppc-batch-{batch}",
        f"Accuracy and protection by mechanism, attack batch {batch}",
        "Look for points where both lines are high: accurate and protected. A solid line below the dashed one is "
        "protection that holds only against an adversary who does not know the mechanism.",
        f"{attack} on {network}: test accuracy and the adversary's distance (relative error of images as the search "
        f"left them; share of images mistraced among {head.participants} participants; share of labels missed) by the "
        "calibrated size of the perturbation. Bands are the papers' regions: in green the perturbation is larger than "
        f"the gradient; beyond, red where the mean error of images cut to [0, 1] is below {LEAKED:g} against the "
        f"{head.headline} adversary, else white (grey here); a strength's band reaches half-way to the next one. "
        f"Points are strengths. Panels that reach beyond {LINEAR:g} are logarithmic above 1.",
    )


def _curve(
    rows: Sequence[Row], metric: str, keys: dict[str, Any], place: tuple[str, str, int], defence: str, adversary: str
) -> tuple[list[float], list[float], list[float]]:
    """Return x, accuracy and distance of a mechanism's strengths, from large perturbations to small ones."""
    attack, network, batch = place
    points = []
    where = {"defence": defence, "variant": MAIN, "network": network}
    for acc in rows_where(rows, metric="accuracy", **where):
        here = {**where, "strength": acc["strength"], "attack_batch": batch, "region": None}
        ratio = rows_where(rows, metric="perturbation_ratio", layers=None, **here)
        hit = rows_where(rows, metric=metric, attack=attack, adversary=adversary, **here, **keys)
        if ratio and hit:
            value = float(hit[0]["value"])
            distance = value if metric == "reconstruction_rmse" else 1 - value
            points.append((calibration(float(ratio[0]["value"])), float(acc["value"]), distance))
    points.sort()
    return [x for x, _, _ in points], [y for _, y, _ in points], [distance for _, _, distance in points]


def bands(x: Sequence[float], errors: Sequence[float]) -> list[tuple[float, float, Region]]:
    """Return (from, to, region) along the scale of mechanisms at ``x``, ascending, whose mean errors are ``errors``.

    Green ends where both are equal in size; beyond, each strength lies where its mean error puts it.
    """
    edge = calibration(1.0)
    beyond = [(at, error) for at, error in zip(x, errors, strict=True) if at >= edge]
    places = [at for at, _ in beyond]
    ends = [edge, *((low + high) / 2 for low, high in pairwise(places)), *(1.05 * at for at in places[-1:])]
    red_or_white = [(*ends, region(np.inf, error)) for ends, (_, error) in zip(pairwise(ends), beyond, strict=False)]
    return [(0.0, edge, "green"), *red_or_white]


def _panel(axes: Axes, curves: Sequence[tuple[list[float], list[float], list[float]]], names: Sequence[str]) -> None:
    for (x, accuracy, distance), name, dashes in zip(curves, names, ("--", "-"), strict=False):
        if name == names[0]:
            axes.plot(x, accuracy, "-.", color=ACCURACY, marker="s", ms=3.5, lw=1.2, label="accuracy")
        axes.plot(x, distance, dashes, color=DISTANCE, marker="o", ms=3.5, lw=1.2, label=f"distance, {name}")


def region_images(head: InversionHead, samples: Sequence[Sample], place: tuple[str, str, int]) -> Drawing | None:
    """Draw true and reconstructed images of each region against the adversary who knows most (spn, figure 6)."""
    attack, _, batch = place
    own = [s for s in samples if (s.attack, s.batch, s.adversary) == (attack, batch, head.headline)]
    groups = {name: [s for s in own if region(s.ratio, s.error) == name] for name in REGIONS}
    if not any(groups.values()):
        return None
    figure = blank_figure(WIDTH, 5.2)
    panels = figure.subplots(2 * len(REGIONS), EXAMPLES, squeeze=False)
    for axes in panels.ravel():
        axes.set_axis_off()
    for line, name in enumerate(REGIONS):
        for column, sample in enumerate(examples(groups[name])):
            upper, lower = panels[2 * line][column], panels[2 * line + 1][column]
            show_image(upper, sample.truth, 255)
            show_image(lower, sample.reconstructed, 255)
            ratio = "∞" if np.isinf(sample.ratio) else f"{sample.ratio:.3g}"
            upper.set_title(
                f"{name}: {sample.error:.2f} ({ratio})\n{sample.defence} {sample.strength:g}", fontsize=7, color=INK
            )
    means = "; ".join(_mean_words(name, groups[name]) for name in REGIONS)
    return finish(
        figure,
        f"regions-batch-{batch}",
        f"Images of each region, attack batch {batch}",
        "Compare each image with the one below it: the red rows are those that leaked.",
        f"Above the true image, below the {head.headline} adversary's reconstruction; relative error, and |B| / |E_B| "
        "in brackets. Pixels are cut to [0, 1]. Examples lie evenly between the smallest and the largest error of a "
        f"region. Means: {means}.",
    )


def examples(samples: Sequence[Sample]) -> list[Sample]:
    """Return up to :data:`EXAMPLES` samples, evenly from the smallest error to the largest."""
    ordered = sorted(samples, key=lambda sample: sample.error)
    if len(ordered) <= EXAMPLES:
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (EXAMPLES - 1))] for i in range(EXAMPLES)]


def _mean_words(name: str, samples: Sequence[Sample]) -> str:
    if not samples:
        return f"{name}: no image"
    ratios = [sample.ratio for sample in samples if np.isfinite(sample.ratio)]
    ratio = f"{np.mean(ratios):.3g}" if ratios else "∞"
    return f"{name}: rMSE {np.mean([sample.error for sample in samples]):.2f}, ratio {ratio}, {len(samples)} images"


def tracing(head: InversionHead, rows: Sequence[Row]) -> Drawing:
    """Draw tracing by the number of participants, single images, the mean over each mechanism's strengths."""
    attack, network, batches = head.attacks[0]
    ways = {attack: "by reconstruction", ALIGNMENT: "by gradient"}
    figure = blank_figure(WIDTH, 5.4)
    panels = figure.subplots(len(ways), len(head.adversaries), sharex=True, sharey=True, squeeze=False)
    for line, (way, words) in enumerate(ways.items()):
        place = {"metric": "tracing_accuracy", "attack": way, "network": network, "attack_batch": batches[0]}
        for axes, adversary in zip(panels[line], head.adversaries, strict=True):
            _traced(axes, rows_where(rows, adversary=adversary, level="participant", variant=MAIN, **place))
            axes.set_title(f"{words}, {adversary} adversary")
        percent_axis(panels[line][0], "y", "images traced")
    for axes in panels[-1]:
        axes.set_xlabel("participants")
    panels[0][0].set_ylim(0, 1.03)
    shared_legend(figure, panels.ravel())
    return finish(
        figure,
        "tracing",
        "Tracing by the number of participants",
        "Look at how far a line stays above the dotted one on the right: so much more often than by guessing an image "
        "is traced to its participant.",
        f"Share of images whose nearest reconstruction ({attack}, attack batch {batches[0]}) belongs to the right "
        "participant, and below of those whose own gradient points to that participant's; the mean over the strengths "
        "of each mechanism; intervals are in measurements.csv.",
    )


def _traced(axes: Axes, rows: Sequence[Row]) -> None:
    for position, defence in enumerate(("none", *DEFENCES)):
        own = [row for row in rows if row["defence"] == defence]
        counts = sorted({int(row["participants"]) for row in own})
        means = [np.mean([float(r["value"]) for r in own if r["participants"] == n]) for n in counts]
        colour = (INK, *SERIES)[position % (1 + len(SERIES))]
        axes.plot(counts, means, color=colour, marker=MARKERS[position % len(MARKERS)], ms=4, lw=1.2, label=defence)
    chance = {int(row["participants"]): float(row["chance"]) for row in rows}
    axes.plot(sorted(chance), [chance[n] for n in sorted(chance)], ":", color=MUTED, lw=1.2, label="chance")


def searches(head: InversionHead, trails: Sequence[Trail], place: tuple[str, str, int]) -> Drawing | None:
    """Draw objective and error by evaluation: a column per mechanism, a line per strength, two panels per adversary."""
    attack, network, batch = place
    own = [trail for trail in trails if (trail.attack, trail.batch) == (attack, batch)]
    names = [name for name in ("none", *DEFENCES) if any(trail.defence == name for trail in own)]
    if not own:
        return None
    figure = blank_figure(WIDTH, 1.2 + 3.4 * len(head.adversaries))
    panels = figure.subplots(2 * len(head.adversaries), len(names), sharex=True, sharey="row", squeeze=False)
    for line, adversary in enumerate(head.adversaries):
        for column, name in enumerate(names):
            here = [trail for trail in own if (trail.adversary, trail.defence) == (adversary, name)]
            _searched(panels[2 * line][column], panels[2 * line + 1][column], here, named=line == 0 and name != "none")
        panels[2 * line][0].set_ylabel(f"{adversary}:\nobjective")
        panels[2 * line + 1][0].set_ylabel(f"{adversary}:\nerror")
    for axes, name in zip(panels[0], names, strict=True):
        axes.set_title(name)
    for axes in panels[-1]:
        axes.set_xlabel("evaluations")
    return finish(
        figure,
        "searches",
        "How the searches went",
        "Look for an error that rises while the objective still falls: there the search left the image, and a "
        "mechanism may look better than it is.",
        f"{attack} on {network}, attack batch {batch}: the objective of the first start after so many evaluations, the "
        "median over gradients, and the relative error of its images cut to [0, 1], the median over images; a line per "
        "strength, the largest palest. Of an adversary who tries several tactics it is the last one's, with the prior "
        "that belongs to it: panels of one column may differ in what they minimise. "
        f"{'; '.join(_strayed(adversary, own) for adversary in head.adversaries)}.",
    )


def _searched(objective: Axes, error: Axes, trails: Sequence[Trail], *, named: bool) -> None:
    for position, trail in enumerate(sorted(trails, key=lambda trail: -trail.strength)):
        look: dict[str, Any] = {"color": DISTANCE, "alpha": 0.35 + 0.65 * (position + 1) / len(trails), "lw": 1.2}
        middle = np.median(np.maximum(trail.values, FLOOR), axis=1)
        objective.plot(trail.evaluations, middle, label=f"{trail.strength:g}" if named else None, **look)
        error.plot(trail.evaluations, np.median(trail.errors, axis=1), **look)
    for axes in (objective, error):
        axes.set_xscale("log")
    objective.set_yscale("log")
    if named:
        objective.legend(fontsize=6, handlelength=1.0)


def _strayed(adversary: str, trails: Sequence[Trail]) -> str:
    """Say in how many settings an adversary's search first came closer to the images and then left them."""
    own = [trail for trail in trails if trail.adversary == adversary]
    strayed = sum(trail.strays for trail in own)
    return f"{adversary}: in {strayed} of {len(own)} settings the median error ends over {STRAYED:g} above its lowest"
