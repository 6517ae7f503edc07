"""Reconstructed images beside the true ones, device by device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedprint.reports.figures.drawing import INK, Drawing, finish, style
from fedprint.reports.figures.panels import blank_figure, show_image

MOST_DEVICES, MOST_IMAGES = 6, 10


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Own images (b, c, h, w) in [0, 1] of a device that trained on ``images``; what each adversary reconstructed."""

    images: int
    truth: NDArray[Any]
    reconstructed: Mapping[str, NDArray[Any]]


def draw_reconstructions(pictures: Sequence[Picture]) -> Drawing:
    """Draw the first images of the first devices, the truth above each adversary's reconstructions."""
    shown = pictures[:MOST_DEVICES]
    columns = min(MOST_IMAGES, max(len(picture.truth) for picture in shown))
    lines = [(picture, name) for picture in shown for name in ("truth", *picture.reconstructed)]
    with style():
        figure = blank_figure(max(0.72 * columns, 3.0), 0.8 * len(lines))
        panels = figure.subplots(len(lines), columns, squeeze=False)
        for line, (picture, name) in zip(panels, lines, strict=True):
            images = picture.truth if name == "truth" else picture.reconstructed[name]
            for axes in line:
                axes.set_axis_off()
            for axes, image in zip(line, images, strict=False):
                show_image(axes, image, 1)
            words = f"truth, 1 of {picture.images}" if name == "truth" else name
            line[0].set_title(words, fontsize=7, color=INK, loc="left")
        return finish(
            figure,
            "reconstructions",
            "Images from recorded updates",
            "Compare the rows of one device: what can be made out below the truth has leaked through its update.",
            f"The first {MOST_IMAGES} images of up to {MOST_DEVICES} devices; below, the reconstruction that fits each "
            "best.",
        )
