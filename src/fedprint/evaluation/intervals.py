"""Confidence intervals over users: a user is drawn with all its questions, because these are not independent.

Every interval is two-sided at ``confidence``. For quantities in known ``bounds`` it is a bootstrap-t (studentised) on
the logit scale with two repairs, each for a way in which few users mislead a bootstrap:

* **edges**: a resample without variance has an infinite t and widens the interval without limit. The interval is then
  cut to exact binomial bounds (:func:`safe_bounds`). Users that are all equal get these bounds, not [v, v].
* **long tail**: when the largest deviation is on one side only, the sample has probably missed users further out
  (AP of random scores is 1/rank: most users .01, a rare one 1). On that side the standard error grows by
  ``-ln((1 - confidence) / 2)`` unseen users (the "rule of three", per side) as extreme as the excess of that deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from scipy.stats import beta
from scipy.stats import t as student_t

from fedprint.evaluation.statistics import Statistic
from fedprint.types import Doubles, FedprintError

Bounds = tuple[float, float]

_TINY = 1e-12
_CELLS = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Interval:
    """``lo <= value <= hi``, in the unit of the values."""

    value: float
    lo: float
    hi: float

    def scaled(self, factor: float) -> Interval:
        """Return the interval of ``factor`` (> 0) times the quantity."""
        return Interval(value=self.value * factor, lo=self.lo * factor, hi=self.hi * factor)


def mean_interval(
    values: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    bounds: Bounds | None = (0.0, 1.0),
) -> Interval:
    """Return the interval of the mean of one value per user (U,), each within ``bounds``."""
    array = np.asarray(values, float)
    return ratio_interval(array, np.ones_like(array), rng, confidence=confidence, resamples=resamples, bounds=bounds)


def cluster_mean_interval(
    values: ArrayLike,
    user_ids: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    bounds: Bounds | None = (0.0, 1.0),
) -> Interval:
    """Return the interval of the mean over examples (n,), resampling the users ``user_ids`` (n,) they belong to."""
    array, users = np.asarray(values, float), np.asarray(user_ids)
    if array.shape != users.shape:
        raise FedprintError(f"values {array.shape} and user_ids {users.shape} must have the same shape")
    _, codes = np.unique(users, return_inverse=True)
    sums, counts = np.bincount(codes, weights=array), np.bincount(codes).astype(float)
    return ratio_interval(sums, counts, rng, confidence=confidence, resamples=resamples, bounds=bounds)


def difference_interval(
    a: ArrayLike,
    b: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    bounds: Bounds | None = (-1.0, 1.0),
) -> Interval:
    """Return the interval of mean(a - b), paired: ``a`` and ``b`` (U,) have the same users in the same order."""
    left, right = np.asarray(a, float), np.asarray(b, float)
    if left.shape != right.shape:
        raise FedprintError(f"paired values need the same users: {left.shape} and {right.shape}")
    return mean_interval(left - right, rng, confidence=confidence, resamples=resamples, bounds=bounds)


def ratio_interval(
    sums: ArrayLike,
    counts: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    bounds: Bounds | None = (0.0, 1.0),
) -> Interval:
    """Return the interval of ``sum(sums) / sum(counts)`` over users with unequal numbers of questions, both (U,).

    With ``bounds`` = (low, high) every question lies in [low, high] and so does the interval. Without bounds the
    bootstrap-t is taken on the plain scale, equal users give a point, and one user gives (-inf, inf). Where there are
    so few users that the bootstrap's t is infinite, Student's t replaces it.

    Raises:
        FedprintError: no users, a count below or equal to zero, a non-finite sum, or a value outside the bounds.
    """
    h, n = check_clusters(sums, counts, bounds)
    low, span = (bounds[0], bounds[1] - bounds[0]) if bounds else (0.0, 1.0)
    unit = (h - low * n) / span
    level = (1 - confidence) / 2
    value = float(unit.sum() / n.sum())
    ends = _studentised_ends(unit, n, rng, level=level, resamples=resamples, bounded=bounds is not None)
    if bounds:
        safe = safe_bounds(unit, n, level)
        ends = (max(ends[0], safe[0]), min(ends[1], safe[1]))
    lo, hi = min(ends[0], value), max(ends[1], value)
    return Interval(value=low + span * value, lo=low + span * lo, hi=low + span * hi)


def check_clusters(sums: ArrayLike, counts: ArrayLike, bounds: Bounds | None) -> tuple[Doubles, Doubles]:
    """Return both as float arrays (U,), or raise FedprintError naming what is wrong."""
    h, n = np.asarray(sums, float), np.asarray(counts, float)
    if h.ndim != 1 or h.shape != n.shape or not h.size:
        raise FedprintError(f"an interval needs one sum and one count per user, got {h.shape} and {n.shape}")
    if not np.isfinite(h).all() or not (n > 0).all():
        raise FedprintError("an interval needs finite values and at least one question per user")
    if bounds and (np.any(h < bounds[0] * n - 1e-9) or np.any(h > bounds[1] * n + 1e-9)):
        raise FedprintError(f"a value lies outside [{bounds[0]}, {bounds[1]}]; pass its true bounds, or bounds=None")
    return h, n


def student_half_width(values: Doubles, confidence: float = 0.95) -> float:
    """Return half the width of Student's interval of the mean of one value per run (r,); 0 for a single run."""
    if len(values) < 2:
        return 0.0
    quantile = float(student_t.ppf((1 + confidence) / 2, len(values) - 1))
    return quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def hit_interval(
    hits: ArrayLike, user_ids: ArrayLike, rng: np.random.Generator, *, confidence: float = 0.95, resamples: int = 2000
) -> Interval:
    """Return the interval of the mean of ``hits`` (q,): Clopper-Pearson when no user is asked about twice."""
    credit, users = np.asarray(hits, float), np.asarray(user_ids)
    if len(np.unique(users)) == len(users):
        return proportion_interval(float(credit.sum()), len(credit), confidence=confidence)
    return cluster_mean_interval(credit, users, rng, confidence=confidence, resamples=resamples)


def proportion_interval(successes: float, trials: float, *, confidence: float = 0.95) -> Interval:
    """Return the Clopper-Pearson interval of a proportion of independent trials.

    Fractional successes are allowed: a mean of [0, 1] values is below a Bernoulli mean in convex order, hence has no
    more spread than the proportion with the same mean, and the interval is conservative for it.
    """
    if not 0 <= successes <= trials or trials <= 0:
        raise FedprintError(f"need 0 <= successes <= trials and trials > 0, got {successes} of {trials}")
    level = (1 - confidence) / 2
    lo = float(beta.ppf(level, successes, trials - successes + 1)) if successes > 0 else 0.0
    hi = float(beta.ppf(1 - level, successes + 1, trials - successes)) if successes < trials else 1.0
    return Interval(value=successes / trials, lo=lo, hi=hi)


def safe_bounds(sums: Doubles, counts: Doubles, level: float) -> Bounds:
    """Return bounds on a [0, 1] mean that hold without any resampling; ``level`` is the error of each side.

    The tighter of two bounds. The first is Clopper-Pearson with fractional successes out of Kish's effective number of
    users. For the second, let k users differ from the most common value c: the share p of such users is at most
    Clopper-Pearson's bound, so that the mean lies within [c - c p, c + (1 - c) p].
    """
    values = np.clip(sums / counts, 0.0, 1.0)
    effective = float(counts.sum() ** 2 / (counts**2).sum())
    mean = min(max(float(sums.sum() / counts.sum()), 0.0), 1.0)
    binomial = proportion_interval(mean * effective, effective, confidence=1 - 2 * level)
    common, times = np.unique(np.round(values, 12), return_counts=True)
    share = counts[np.abs(values - common[times.argmax()]) > _TINY * 10].sum() / counts.sum()
    off = proportion_interval(min(share, 1.0) * effective, effective, confidence=1 - 2 * level).hi
    c = float(common[times.argmax()])
    return max(binomial.lo, c - c * off), min(binomial.hi, c + (1 - c) * off)


def _studentised_ends(
    h: Doubles, n: Doubles, rng: np.random.Generator, *, level: float, resamples: int, bounded: bool
) -> Bounds:
    if len(h) == 1:
        return -np.inf, np.inf
    value, error = (float(x[0]) for x in _ratio_and_error(np.ones((1, len(h))), h, n))
    if error < _TINY:
        return (-np.inf, np.inf) if bounded else (value, value)
    draws = [_ratio_and_error(counts, h, n) for counts in _resampled_counts(len(h), resamples, rng)]
    ratios, errors = np.concatenate([d[0] for d in draws]), np.concatenate([d[1] for d in draws])
    centre, slope, shifts = _on_scale(value, ratios, bounded)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(errors < _TINY, np.copysign(np.inf, ratios - value), (shifts - centre) / (errors * slope[1:]))
    t_lo, t_hi = np.quantile(t, [level, 1 - level], method="inverted_cdf")
    if not bounded:  # there are no bounds to cut an infinite t
        reach = float(student_t.ppf(1 - level, len(h) - 1))
        t_lo, t_hi = (end if np.isfinite(end) else np.copysign(reach, end) for end in (t_lo, t_hi))
    below, above = _tail_errors(h, n, value, error, unseen=-np.log(level))
    ends = np.array([centre - t_hi * below * slope[0], centre - t_lo * above * slope[0]])
    lo, hi = expit(ends) if bounded else ends
    return float(lo), float(hi)


def _on_scale(value: float, ratios: Doubles, bounded: bool) -> tuple[float, Doubles, Doubles]:
    """Return the value, the slopes d(scale)/d(ratio) at it and at each draw (1 + B,), and the draws on the scale."""
    if not bounded:
        return value, np.ones(1 + len(ratios)), ratios
    inside = np.clip(np.concatenate([[value], ratios]), _TINY, 1 - _TINY)
    scaled = logit(inside)
    return float(scaled[0]), 1 / (inside * (1 - inside)), scaled[1:]


def _tail_errors(h: Doubles, n: Doubles, value: float, error: float, unseen: float) -> Bounds:
    """Return the standard error to use below and above ``value``, with the unseen users of the longer tail."""
    residuals = (h - value * n) / n.sum()
    excess = residuals.max() + residuals.min()
    below, above = (np.sqrt(error**2 + unseen * max(x, 0.0) ** 2) for x in (-excess, excess))
    return float(below), float(above)


def _resampled_counts(users: int, resamples: int, rng: np.random.Generator) -> Iterator[Doubles]:
    """Yield (b, U) blocks, ``resamples`` rows in all: how often each user is in each bootstrap sample."""
    block = max(1, _CELLS // users)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        cells = rng.integers(0, users, (rows, users)) + users * np.arange(rows)[:, None]
        yield np.bincount(cells.ravel(), minlength=rows * users).reshape(rows, users).astype(float)


def _ratio_and_error(times: Doubles, h: Doubles, n: Doubles) -> tuple[Doubles, Doubles]:
    """Return ratio and linearised standard error (b,) of the samples ``times`` (b, U)."""
    users = len(h)
    sh, sn, hh, hn, nn = (times @ np.stack([h, n, h * h, h * n, n * n], axis=1)).T
    ratio = sh / sn
    squares = np.maximum(hh - 2 * ratio * hn + ratio**2 * nn, 0.0)
    # Cancellation leaves about 1e-16 of the terms; without the cut a constant sample would have a tiny error.
    squares[squares < 1e-13 * (hh + nn)] = 0.0
    return ratio, np.sqrt(squares * users / (users - 1)) / sn


def cluster_bootstrap_interval(
    statistic: Callable[[Doubles], float],
    user_ids: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 200,
) -> Interval:
    """Return the interval of a [0, 1] statistic that is no mean over examples, such as the mean AP over classes.

    ``statistic`` maps weights (n,), how often each example is in the sample, to a number; ``user_ids`` (n,). The
    estimate plus or minus Student's t times the bootstrap standard error, on the logit scale: centred at the estimate
    because duplicates bias a ranking metric in the resamples. Without variance :func:`proportion_interval` takes over.
    """
    _, codes = np.unique(np.asarray(user_ids), return_inverse=True)
    users = int(codes.max()) + 1
    value = float(statistic(np.ones(len(codes))))
    blocks = _resampled_counts(users, resamples, rng)
    draws = np.array([statistic(times[codes]) for block in blocks for times in block])
    error = float(np.nanstd(draws, ddof=1)) if users > 1 else 0.0
    safe = proportion_interval(min(max(value, 0.0), 1.0) * users, users, confidence=confidence)
    if error < _TINY or not _TINY < value < 1 - _TINY:
        return safe
    reach = float(student_t.ppf((1 + confidence) / 2, users - 1)) * error / (value * (1 - value))
    lo, hi = expit(logit(value) - reach), expit(logit(value) + reach)
    return Interval(value=value, lo=max(float(lo), safe.lo), hi=min(float(hi), safe.hi))


def gain_interval(
    pairs: Sequence[tuple[Statistic, Statistic]],
    user_ids: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 200,
) -> Interval:
    """Return the interval of the mean of (first - second) over seeds, for statistics in [0, 1]; within [-1, 1].

    Two half widths are added in squares: a bootstrap over users of the mean difference (with the seeds fixed), and
    Student's t over the seeds' differences (with the users fixed). The first contains a little of the second, so that
    the interval is too wide rather than too narrow. With a single seed only users count.
    """

    def difference(weights: Doubles) -> float:
        return float(np.mean([first(weights) - second(weights) for first, second in pairs]))

    halved = cluster_bootstrap_interval(
        lambda weights: (1 + difference(weights)) / 2, user_ids, rng, confidence=confidence, resamples=resamples
    )
    ones = np.ones(len(np.asarray(user_ids)))
    by_seed = np.array([first(ones) - second(ones) for first, second in pairs])
    seeds = student_half_width(by_seed, confidence)
    value = float(by_seed.mean())
    below, above = (np.hypot(2 * side, seeds) for side in (halved.value - halved.lo, halved.hi - halved.value))
    return Interval(value=value, lo=max(-1.0, value - float(below)), hi=min(1.0, value + float(above)))
