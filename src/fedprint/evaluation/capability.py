"""What a mechanism protects and costs: the PPC curve and the CAP score (spn, definition 1; papers.md 4.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.chance import FloatArray
from fedprint.evaluation.intervals import Bounds, Interval, cluster_mean_interval
from fedprint.types import FedprintError

Region = Literal["green", "white", "red"]
LEAKED = 0.2
"""An image below this relative error is a pixel-level leak."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A mechanism at one strength m: ``accuracy`` = Acc(m) with its interval, ``distances`` (n,) of n attacked images.

    Settings that are averaged or compared attack the same images, in the same order.
    """

    accuracy: Interval
    distances: FloatArray


def calibration(ratio: float) -> float:
    """Return the PPC curve's x: ``log10(|B_I| / |E_B| + 1)``, infinite without a perturbation."""
    return math.log10(ratio + 1)


def region(ratio: float, error: float) -> Region:
    """Return where an attacked gradient lies: a label of the figure and no theorem (erratum 6).

    green: the perturbation is larger than the gradient, ``ratio`` < 1; red: not, and the image leaked, ``error`` <
    :data:`LEAKED`; white: not, and what was found is an artefact.
    """
    if ratio < 1:
        return "green"
    return "red" if error < LEAKED else "white"


def performance(settings: Sequence[Setting]) -> FloatArray:
    """Return ``mean_m Acc(m) dist_i(m)`` of every image i (n,); its mean over images is the CAP score."""
    if len({len(setting.distances) for setting in settings}) != 1:
        raise FedprintError("CAP: every setting must attack the same images; got different numbers, or no setting")
    weighted = [setting.accuracy.value * np.asarray(setting.distances, float) for setting in settings]
    result: FloatArray = np.mean(weighted, axis=0)
    return result


def cap(settings: Sequence[Setting], victims: ArrayLike, rng: np.random.Generator, top: float | None) -> Interval:
    """Return ``CAP = mean_m Acc(m) dist(m)`` (spn, eq. 1), higher is better.

    The interval joins two sources as the root of their squares: images, drawn with their ``victims`` (n,), and the
    accuracies, which share a test set and so are taken to err together. ``top`` is the largest distance there can be,
    None where there is none.
    """
    over_images = _mean(performance(settings), victims, rng, None if top is None else (0.0, top))
    value = over_images.value
    low, high = (
        float(np.mean([getattr(s.accuracy, end) * np.mean(s.distances) for s in settings])) for end in ("lo", "hi")
    )
    return Interval(
        value=value,
        lo=max(value - math.hypot(value - over_images.lo, value - low), 0.0),
        hi=value + math.hypot(over_images.hi - value, high - value),
    )


def cap_difference(
    one: Sequence[Setting], other: Sequence[Setting], victims: ArrayLike, rng: np.random.Generator, top: float | None
) -> Interval:
    """Return CAP of ``one`` minus CAP of ``other``, paired image by image; accuracies are taken as measured."""
    return _mean(performance(one) - performance(other), victims, rng, None if top is None else (-top, top))


def _mean(values: FloatArray, victims: ArrayLike, rng: np.random.Generator, bounds: Bounds | None) -> Interval:
    return cluster_mean_interval(values, victims, rng, bounds=bounds)
