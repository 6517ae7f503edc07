"""How close reconstructed images are to the true ones, image by image.

Letters: v victims, b images of each. Images are (v, b, c, h, w) in [0, 1]; numbers are (v, b), in float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter
from scipy.optimize import linear_sum_assignment

from fedprint.types import Doubles, Ints

SUCCESS = (0.1, 0.2)
"""Relative errors below which an image counts as recovered."""

SSIM_SIGMA, SSIM_TRUNCATE = 1.5, 3.5
SSIM_CONSTANTS = (0.01**2, 0.03**2)


def relative_errors(images: ArrayLike, truth: ArrayLike) -> Doubles:
    """Return ``|x* - x| / |x|`` in index order: the rMSE of spn, section 4.2, a ratio of norms and no square."""
    a, x = _flat(images), _flat(truth)
    result: Doubles = np.linalg.norm(a - x, axis=2) / np.linalg.norm(x, axis=2)
    return result


def assignment(images: ArrayLike, truth: ArrayLike) -> Ints:
    """Return for every true image (v, b) the position of the reconstruction that belongs to it.

    Of all ways to pair the images of a victim it has the smallest sum of relative errors. There may be more
    reconstructions than true images: a defence of the data can add images to a device.
    """
    a, x = _flat(images), _flat(truth)
    size = np.linalg.norm(x, axis=2)
    cost = np.linalg.norm(x[:, :, None] - a[:, None], axis=3) / size[:, :, None]
    return np.stack([linear_sum_assignment(one)[1] for one in cost]).astype(np.int64)


def rearranged(values: ArrayLike, order: Ints) -> Doubles:
    """Return the victims' values (v, b, ...) in the ``order`` (v, b) of :func:`assignment`."""
    array = np.asarray(values, np.float64)
    return array[np.arange(len(array))[:, None], order]


def largest_errors(truth: ArrayLike) -> Doubles:
    """Return the largest relative error that an image in [0, 1] can have: every pixel at the other end."""
    x = _flat(truth)
    result: Doubles = np.linalg.norm(np.maximum(x, 1 - x), axis=2) / np.linalg.norm(x, axis=2)
    return result


def psnr(images: ArrayLike, truth: ArrayLike) -> Doubles:
    """Return the peak signal-to-noise ratio in dB, at most 100: ``-10 log10`` of the mean squared error."""
    error = np.square(_flat(images) - _flat(truth)).mean(2)
    result: Doubles = -10 * np.log10(np.maximum(error, 1e-10))
    return result


def ssim(images: ArrayLike, truth: ArrayLike) -> Doubles:
    """Return the structural similarity (Wang et al. 2004), the mean over pixels and channels.

    A Gaussian window of standard deviation 1.5 cut at 11 pixels; images are mirrored at their edges.
    """
    a, x = np.asarray(images, np.float64), np.asarray(truth, np.float64)
    mean_a, mean_x = _blurred(a), _blurred(x)
    var_a, var_x = _blurred(a * a) - mean_a**2, _blurred(x * x) - mean_x**2
    cov = _blurred(a * x) - mean_a * mean_x
    c1, c2 = SSIM_CONSTANTS
    each = (2 * mean_a * mean_x + c1) * (2 * cov + c2) / ((mean_a**2 + mean_x**2 + c1) * (var_a + var_x + c2))
    result: Doubles = each.mean((2, 3, 4))
    return result


def label_hits(guessed: ArrayLike, truth: ArrayLike) -> Doubles:
    """Return 1 for every true label (v, b) that is among the ``guessed`` ones (v, b) of its victim, each used once.

    The order does not matter: a gradient of several images has none.
    """
    guesses, labels = np.asarray(guessed, np.int64), np.asarray(truth, np.int64)
    hits = np.zeros(labels.shape)
    for row, (mine, theirs) in enumerate(zip(guesses, labels, strict=True)):
        left = list(mine)
        for i, label in enumerate(theirs):
            if label in left:
                left.remove(label)
                hits[row, i] = 1.0
    return hits


def chance_label_hits(truth: ArrayLike, classes: int, draws: int | None = None) -> Doubles:
    """Return the expected :func:`label_hits` (v, b) of ``draws`` labels (default: b) drawn uniformly from ``classes``.

    Of k true labels of one class ``min(X, k)`` are hit, X binomial of the draws.
    """
    from scipy.stats import binom

    labels = np.asarray(truth, np.int64)
    b = labels.shape[1]
    tries = b if draws is None else draws
    expected = {k: float(binom.sf(np.arange(k), tries, 1 / classes).sum()) / k for k in range(1, b + 1)}
    counts = np.stack([(row[:, None] == row[None, :]).sum(1) for row in labels])
    result: Doubles = np.vectorize(expected.__getitem__, otypes=[np.float64])(counts)
    return result


def _flat(images: ArrayLike) -> Doubles:
    array = np.asarray(images, np.float64)
    return array.reshape(*array.shape[:2], -1)


def _blurred(images: Doubles) -> Doubles:
    sigma = (0, 0, 0, SSIM_SIGMA, SSIM_SIGMA)
    result: Doubles = gaussian_filter(images, sigma, truncate=SSIM_TRUNCATE, mode="reflect")
    return result
