"""Figure of how entries of a gradient and of what a secret head adds are distributed, by layer (papers.md 4.3)."""

from __future__ import annotations

from fedprint.reports.figures.drawing import SERIES, Drawing, finish
from fedprint.reports.figures.panels import WIDTH, blank_figure, shared_legend
from fedprint.reports.numbers.inversion import Layers

COLUMNS = 4
PARTS = {"gradient": ("cross-entropy", "--", SERIES[1]), "added": ("polarization", "-", SERIES[0])}
"""What of a gradient is drawn -> its name, its line and its colour."""


def layer_distributions(layers: Layers) -> Drawing:
    """Draw the distribution functions of both parts of the gradient, a panel per layer of weights or biases."""
    names = list(layers.quantiles)
    lines = -(-len(names) // COLUMNS)
    figure = blank_figure(WIDTH, 0.8 + 1.7 * lines)
    panels = figure.subplots(lines, COLUMNS, sharey=True, squeeze=False)
    for axes in panels.ravel()[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(panels.ravel(), names, strict=False):
        for part, (words, dashes, colour) in PARTS.items():
            axes.plot(layers.quantiles[name][part], layers.levels, dashes, color=colour, lw=1.2, label=words)
        axes.set_title(name)
        axes.locator_params(axis="x", nbins=4)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3))
    for line in panels:
        line[0].set_ylabel("share below")
    for axes in panels.ravel()[max(0, len(names) - COLUMNS) : len(names)]:
        axes.set_xlabel("entry of the gradient")
    shared_legend(figure, panels.ravel())
    return finish(
        figure,
        "layers",
        "What the secret head adds, entry by entry",
        "Compare the two curves of a panel: only where the solid one is as wide as the dashed one is a layer covered.",
        f"spn with alpha2 = {layers.strength:g} on {layers.network}, attack batch {layers.batch}: the share of entries "
        "below a value, first and last per cent aside, of the gradient of the cross-entropy and of what the "
        f"polarization loss adds to it, over {layers.gradients} gradients. The public head, to which nothing is added, "
        "is left out.",
    )
