"""How well members are told from others: area under the ROC curve, and the true positive rate at a low false one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import roc_auc_score

from fedprint.evaluation.intervals import Interval, cluster_bootstrap_interval, proportion_interval
from fedprint.types import FedprintError

FALSE_POSITIVES = 1e-3
"""The false positive rate at which attacks are compared (Carlini et al. 2022): an average hides what few users lose."""


@dataclass(frozen=True, kw_only=True)
class MembershipOutcome:
    """``auc``, and ``tpr`` at a false positive rate of at most ``fpr``; ``members`` and ``others`` are their numbers.

    ``resolved`` is false where the others are fewer than ``1 / fpr``: the threshold then lies above all of them, and
    the false positive rate of the attack may be anything up to ``fpr_bound``, the end of its interval.
    """

    auc: Interval
    tpr: Interval
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

    ``clusters`` (n,) says which scores belong together, such as those on one update: the AUC's interval draws them
    whole. The interval of the true positive rate is Clopper and Pearson's over the members, at the threshold found.
    Raises FedprintError unless there are members and others.
    """
    score, truth = np.asarray(scores, float), np.asarray(member, bool)
    if not truth.any() or truth.all():
        raise FedprintError(f"membership: {int(truth.sum())} of {len(truth)} are members; bring both kinds")
    if not np.isfinite(score).all():
        raise FedprintError("membership: a score is not finite; check the attack's statistic")

    def auc(times: np.ndarray) -> float:
        drawn = times > 0
        if len(np.unique(truth[drawn])) < 2:
            return math.nan
        return float(roc_auc_score(truth[drawn], score[drawn], sample_weight=times[drawn]))

    others = np.sort(score[~truth])[::-1]
    allowed = math.floor(fpr * len(others) + 1e-9)
    threshold = others[allowed]
    wrong = int((others > threshold).sum())
    hits = int((score[truth] > threshold).sum())
    return MembershipOutcome(
        auc=cluster_bootstrap_interval(auc, clusters, rng, confidence=confidence),
        tpr=proportion_interval(hits, int(truth.sum()), confidence=confidence),
        fpr=fpr,
        fpr_bound=proportion_interval(wrong, len(others), confidence=confidence).hi,
        resolved=allowed > 0,
        members=int(truth.sum()),
        others=len(others),
    )
