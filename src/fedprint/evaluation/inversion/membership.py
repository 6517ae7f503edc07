"""How well members are told from others: area under the ROC curve, and the true positive rate at a low false one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedprint.evaluation.intervals import (
    Interval,
    cluster_bootstrap_interval,
    cluster_mean_interval,
    proportion_interval,
)
from fedprint.types import Doubles, FedprintError

FALSE_POSITIVES = 1e-3
"""The false positive rate at which attacks are compared (Carlini et al. 2022): an average hides what few users lose."""


@dataclass(frozen=True, kw_only=True)
class MembershipOutcome:
    """``auc``, and ``tpr`` at a false positive rate of at most ``fpr``; ``members`` and ``others`` are their numbers.

    ``tpr_chance`` is the rate that random scores give at such a threshold: the AUC's is one half.
    ``resolved`` is false where the others are fewer than ``1 / fpr``: the threshold then lies above all of them, and
    the false positive rate of the attack may be anything up to ``fpr_bound``, the end of its interval.
    """

    auc: Interval
    tpr: Interval
    tpr_chance: float
    fpr: float
    fpr_bound: float
    resolved: bool
    members: int
    others: int

    @property
    def note(self) -> str:
        """What to say beside the number; empty where nothing is amiss."""
        if self.resolved:
            return ""
        needed = math.ceil(1 / self.fpr)
        return f"{self.others} non-members are too few for a false positive rate of {self.fpr:g} (at least {needed})"


def membership_outcome(
    scores: ArrayLike,
    member: ArrayLike,
    clusters: ArrayLike,
    rng: np.random.Generator,
    *,
    fpr: float = FALSE_POSITIVES,
    confidence: float = 0.95,
) -> MembershipOutcome:
    """Return the outcome of ``scores`` (n,), higher for members, against the truth ``member`` (n,).

    ``clusters`` (n,) says which scores belong together, such as those on one update: intervals draw them whole. That of
    the true positive rate holds at the threshold found, and is Clopper and Pearson's where each cluster has one member.
    Raises FedprintError unless there are members and others.
    """
    score, truth = np.asarray(scores, float), np.asarray(member, bool)
    if not truth.any() or truth.all():
        raise FedprintError(f"membership: {int(truth.sum())} of {len(truth)} are members; bring both kinds")
    if not np.isfinite(score).all():
        raise FedprintError("membership: a score is not finite; check the attack's statistic")

    others = np.sort(score[~truth])[::-1]
    allowed = math.floor(fpr * len(others) + 1e-9)
    threshold = others[allowed]
    wrong = int((others > threshold).sum())
    return MembershipOutcome(
        auc=cluster_bootstrap_interval(_area(score, truth), clusters, rng, confidence=confidence),
        tpr=_rate(score[truth] > threshold, np.asarray(clusters)[truth], rng, confidence),
        tpr_chance=(allowed + 1) / (len(others) + 1),
        fpr=fpr,
        fpr_bound=proportion_interval(wrong, len(others), confidence=confidence).hi,
        resolved=allowed > 0,
        members=int(truth.sum()),
        others=len(others),
    )


def _area(score: Doubles, truth: NDArray[np.bool_]) -> Callable[[Doubles], float]:
    """Return the area under the ROC curve as a function of weights (n,), NaN where one side has none."""
    _, place = np.unique(score, return_inverse=True)

    def auc(times: Doubles) -> float:
        members, others = (np.bincount(place, weights=times * side) for side in (truth, ~truth))
        pairs = members.sum() * others.sum()
        return float(members @ (np.cumsum(others) - others / 2) / pairs) if pairs else math.nan

    return auc


def _rate(hits: NDArray[np.bool_], clusters: NDArray[Any], rng: np.random.Generator, confidence: float) -> Interval:
    """Return the share of ``hits`` (n,) with its interval over ``clusters`` (n,)."""
    if len(np.unique(clusters)) == len(clusters):
        return proportion_interval(int(hits.sum()), len(hits), confidence=confidence)
    return cluster_mean_interval(hits.astype(float), clusters, rng, confidence=confidence)
