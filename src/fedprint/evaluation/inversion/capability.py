"""What a mechanism protects and costs: the PPC curve and the CAP score (spn, definition 1; papers.md 4.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.intervals import (
    Bounds,
    Interval,
    cluster_mean_interval,
    mean_interval,
    proportion_interval,
    student_half_width,
)
from fedprint.types import Doubles, FedprintError

Region = Literal["green", "white", "red"]
LEAKED = 0.2
"""An image below this relative error is a pixel-level leak."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A mechanism at one strength m: test ``hits`` of its model, (t,) or (r, t) of r runs, and ``distances`` (n,).

    Settings that are averaged or compared have the same t test and n attacked images, in the same order, and runs.
    """

    hits: Doubles
    distances: Doubles

    @property
    def accuracy(self) -> Interval:
        """Acc(m) with its interval over test images and runs."""
        return accuracy_of_runs(self.hits)


def accuracy_of_runs(hits: Doubles) -> Interval:
    """Return the accuracy of test hits (t,), or (r, t) of r runs of one training, on the same images.

    The interval joins two sources of error as the root of their squares: test images, and runs where there are several.
    With a single run it does not contain the differences between runs.
    """
    runs = np.atleast_2d(np.asarray(hits, float))
    images, half = proportion_interval(float(runs.mean(0).sum()), runs.shape[1]), student_half_width(runs.mean(1))
    return Interval(
        value=images.value,
        lo=max(images.value - math.hypot(images.value - images.lo, half), 0.0),
        hi=min(images.value + math.hypot(images.hi - images.value, half), 1.0),
    )


def calibration(ratio: float) -> float:
    """Return the PPC curve's x: ``log10(|B_I| / |E_B| + 1)``, infinite without a perturbation."""
    return math.log10(ratio + 1)


def region(ratio: float, error: float) -> Region:
    """Return where an attacked gradient lies: a label of the figure and no theorem (papers.md, erratum 6).

    green: the perturbation is larger than the gradient, ``ratio`` < 1; red: it is smaller, and the image leaked,
    ``error`` < :data:`LEAKED`; white: it is smaller, and the reconstruction is an artefact.
    """
    if ratio < 1:
        return "green"
    return "red" if error < LEAKED else "white"


def performance(settings: Sequence[Setting]) -> Doubles:
    """Return ``mean_m Acc(m) dist_i(m)`` of every image i (n,); its mean over images is the CAP score."""
    if len({len(setting.distances) for setting in settings}) != 1:
        raise FedprintError("CAP: every setting must attack the same images; got different numbers, or no setting")
    weighted = [setting.accuracy.value * np.asarray(setting.distances, float) for setting in settings]
    result: Doubles = np.mean(weighted, axis=0)
    return result


def cap(settings: Sequence[Setting], victims: ArrayLike, rng: np.random.Generator, top: float | None) -> Interval:
    """Return ``CAP = mean_m Acc(m) dist(m)`` (spn, eq. 1), higher is better.

    The interval joins two sources of error as the root of their squares: images, drawn with their ``victims`` (n,), and
    the accuracies, which share a test set, so that their errors are taken as fully dependent. ``top`` is the largest
    possible distance, None where there is no limit.
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
    """Return CAP of ``one`` minus CAP of ``other``, in [-``top``, ``top``].

    The interval joins three sources of error as the root of their squares, all paired: attacked images, drawn with
    their ``victims`` (n,), test images, on which all models are tested, and runs, which start alike. Raises
    FedprintError for different test sets.
    """
    over_images = _mean(performance(one) - performance(other), victims, rng, None if top is None else (-top, top))
    tested = [_by_test_image(settings) for settings in (one, other)]
    if len(tested[0]) != len(tested[1]):
        raise FedprintError(f"CAP: models of one difference must share test images; got {[len(t) for t in tested]}")
    bounds = (-float(tested[1].max()), float(tested[0].max()))
    over_tests = mean_interval(tested[0] - tested[1], rng, bounds=bounds if bounds[0] < bounds[1] else None)
    value, runs = over_images.value, student_half_width(_by_run(one) - _by_run(other))
    return Interval(
        value=value,
        lo=value - math.hypot(value - over_images.lo, over_tests.value - over_tests.lo, runs),
        hi=value + math.hypot(over_images.hi - value, over_tests.hi - over_tests.value, runs),
    )


def _by_test_image(settings: Sequence[Setting]) -> Doubles:
    """Return each test image's contribution (t,), times t, to CAP: whether it was hit, times the mean distance."""
    result: Doubles = np.mean([np.atleast_2d(s.hits).mean(0) * np.mean(s.distances) for s in settings], axis=0)
    return result


def _by_run(settings: Sequence[Setting]) -> Doubles:
    """Return the CAP (r,) of each run's accuracies."""
    result: Doubles = np.mean([np.atleast_2d(s.hits).mean(1) * np.mean(s.distances) for s in settings], axis=0)
    return result


def _mean(values: Doubles, victims: ArrayLike, rng: np.random.Generator, bounds: Bounds | None) -> Interval:
    return cluster_mean_interval(values, victims, rng, bounds=bounds)
