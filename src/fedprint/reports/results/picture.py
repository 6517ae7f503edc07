"""The picture of README: who is recognised, by what the adversary knows of a user's data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedprint.reports.figures.drawing import INK, finish, mark, percent_axis, style
from fedprint.reports.figures.panels import blank_figure
from fedprint.reports.results.published import Published

PICTURE = Path("docs/images/recognition.png")
_KNOWN = {
    "random": "a random half",
    "chrono": "the earlier half",
    "photoset": "whole albums",
    "iid": "control: mixed users",
}


def picture(experiments: Sequence[Published]) -> str:
    """Return the picture of one experiment as a block shows it, with its source."""
    image = f"![Average precision of the chosen attacker, by what the adversary knows of a user's data]({PICTURE})"
    (one,) = experiments
    return (
        f"{image}\n\n*Average precision (AP) with which the chosen attacker names the sender, by what it knows of a "
        f"user's data. Upright lines are chance. {one.source(one.ap(prior=one.priors()[0])[0])}.*"
    )


def recognition(one: Published) -> bytes:
    """Return the picture as PNG: AP with interval and chance by prior, of one update and of all of a device."""
    with style():
        figure = blank_figure(7.2, 2.4)
        axes = figure.subplots()
        for position, prior in enumerate(one.priors()):
            for which, row in enumerate(one.ap(prior=prior)):
                y, (colour, marker) = position + 0.3 * which - 0.15, mark(which)
                label = ("one update", "all updates of a device")[which] if position == 0 else None
                axes.plot([row["lo"], row["hi"]], [y, y], color=colour)
                axes.plot(row["value"], y, marker, color=colour, label=label)
                axes.plot([row["chance"]] * 2, [y - 0.13, y + 0.13], color=INK, lw=1.2)
        axes.set_yticks(range(len(one.priors())), [_KNOWN[prior] for prior in one.priors()])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.grid(visible=False, axis="y")
        percent_axis(axes, "x", "average precision")
        figure.legend(loc="outside upper right", ncols=2)
        return finish(figure, "recognition", "", "", "").png
