"""What a model owes to each user's test examples, and how much of its utility private data decide.

A model that learns from public data alone protects everybody and may be nearly as useful as one that learns from users.
So a defence's utility is read as the share of the gain over such a model that it keeps (ADR 16).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.intervals import Interval
from fedprint.evaluation.statistics import Statistic
from fedprint.types import Doubles

Parts = Mapping[str, tuple[float, float]]
"""User id -> sum of the metric over the user's test examples, and their number. Summed sums over summed numbers are
the utility."""

WORST = 0.1
"""Share of the users that are worst off."""


def mean_parts(values: ArrayLike, user_ids: ArrayLike) -> dict[str, tuple[float, float]]:
    """Return the parts of a metric that is a mean of ``values`` (n,) over examples, NaN for those that do not count."""
    array, users = np.asarray(values, float), np.asarray(user_ids)
    counted = ~np.isnan(array)
    names, codes = np.unique(users[counted], return_inverse=True)
    sums, numbers = np.bincount(codes, array[counted]), np.bincount(codes)
    return {str(name): (float(s), float(n)) for name, s, n in zip(names.tolist(), sums, numbers, strict=True)}


def jackknife_parts(statistic: Statistic, user_ids: ArrayLike) -> dict[str, tuple[float, float]]:
    """Return the parts of a metric that is no mean over examples: pseudo-values, each of number 1.

    The pseudo-value of a user is M + (U - 1) (mean(M_without) - M_without), where M is the metric and M_without that
    without the user's examples (Tukey 1958, shifted so that the mean over the U users is M).
    ``statistic`` maps weights (n,) to the metric; there must be two users or more.
    """
    names, codes = np.unique(np.asarray(user_ids), return_inverse=True)
    whole = statistic(np.ones(len(codes)))
    without = np.array([statistic((codes != code).astype(float)) for code in range(len(names))])
    pseudo = whole + (len(names) - 1) * (np.nanmean(without) - without)
    pseudo[np.isnan(pseudo)] = whole
    return {str(name): (float(value), 1.0) for name, value in zip(names.tolist(), pseudo, strict=True)}


def worst_users(parts: Parts, *, higher_is_better: bool = True) -> float:
    """Return the utility of the tenth of the users who are worst off, one user at least."""
    own = np.sort([total / number for total, number in parts.values()])
    worst = max(1, round(WORST * len(own)))
    return float((own[:worst] if higher_is_better else own[-worst:]).mean())


@dataclass(frozen=True, kw_only=True)
class PrivateShare:
    """How much of the gain by private data a defence keeps, in one seed.

    ``gain`` is the undefended utility less that of public data alone, ``lost`` the undefended utility less the
    defended one, ``share`` the kept share ``1 - lost / gain``, None where the interval of ``gain`` is not above 0.
    """

    gain: Interval
    lost: Interval
    share: Interval | None


def private_share(
    defended: Parts,
    undefended: Parts,
    public: Parts,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    higher_is_better: bool = True,
) -> PrivateShare:
    """Return what private data decide, with intervals of a paired bootstrap over the users that all three have."""
    users = sorted(set(defended) & set(undefended) & set(public))
    sign = 1.0 if higher_is_better else -1.0
    sums = [sign * np.array([parts[user][0] for user in users]) for parts in (defended, undefended, public)]
    numbers = np.array([undefended[user][1] for user in users])
    weights = rng.multinomial(len(users), np.full(len(users), 1 / len(users)), size=resamples).astype(float)
    weights = np.concatenate([np.ones((1, len(users))), weights])  # the estimate itself first
    over = weights @ numbers
    own, plain, floor = ((weights @ each) / over for each in sums)
    gain = _percentiles(plain - floor, confidence)
    share = _percentiles((own - floor) / (plain - floor), confidence) if gain.lo > 0 else None
    return PrivateShare(gain=gain, lost=_percentiles(plain - own, confidence), share=share)


def _percentiles(draws: Doubles, confidence: float) -> Interval:
    level = (1 - confidence) / 2
    lo, hi = np.quantile(draws[1:], [level, 1 - level])
    value = float(draws[0])
    return Interval(value=value, lo=min(float(lo), value), hi=max(float(hi), value))
