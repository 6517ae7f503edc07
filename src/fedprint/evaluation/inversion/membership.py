"""How well members are distinguished from others: area under the ROC curve, and true positives at few false ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.intervals import Interval, cluster_bootstrap_interval, hit_interval, proportion_interval
from fedprint.evaluation.statistics import weighted_auroc
from fedprint.types import FedprintError

FALSE_POSITIVES = 1e-3
"""The false positive rate at which attacks are compared (Carlini et al. 2022): an average hides what few users lose."""


@dataclass(frozen=True, kw_only=True)
class MembershipOutcome:
    """``auc``, and ``tpr`` at a false positive rate of at most ``fpr``; ``members`` and ``others`` are their numbers.

    ``tpr_chance`` is the rate that random scores give at such a threshold; chance of the AUC is one half.
    ``resolved`` is false where there are fewer others than ``1 / fpr``: the threshold is then above all of them, and
    the false positive rate of the attack may be as large as ``fpr_bound``, the end of its interval.
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
        """A warning to print beside the number; empty where there is none."""
        if self.resolved:
            return ""
        needed = math.ceil(1 / self.fpr)
        return f"{self.others} non-members are too few for a false positive rate of {self.fpr:g} (at least {needed})"


def membership_outcome(
    scores: ArrayLike, member: ArrayLike, clusters: ArrayLike, rng: np.random.Generator
) -> MembershipOutcome:
    """Return the outcome of ``scores`` (n,), higher for members, against the truth ``member`` (n,).

    ``clusters`` (n,) says which scores belong together, such as those on one update: intervals draw them whole. The
    interval of the true positive rate takes the threshold as fixed, and is Clopper and Pearson's where each cluster has
    one member.
    Raises FedprintError unless there are members and others.
    """
    score, truth = np.asarray(scores, float), np.asarray(member, bool)
    if not truth.any() or truth.all():
        raise FedprintError(f"membership: {int(truth.sum())} of {len(truth)} are members; bring both kinds")
    if not np.isfinite(score).all():
        raise FedprintError("membership: a score is not finite; check the attack's statistic")

    others = np.sort(score[~truth])[::-1]
    allowed = math.floor(FALSE_POSITIVES * len(others) + 1e-9)
    threshold = others[allowed]
    wrong = int((others > threshold).sum())
    return MembershipOutcome(
        auc=cluster_bootstrap_interval(weighted_auroc(score, truth), clusters, rng),
        tpr=hit_interval(score[truth] > threshold, np.asarray(clusters)[truth], rng),
        tpr_chance=(allowed + 1) / (len(others) + 1),
        fpr=FALSE_POSITIVES,
        fpr_bound=proportion_interval(wrong, len(others)).hi,
        resolved=allowed > 0,
        members=int(truth.sum()),
        others=len(others),
    )
