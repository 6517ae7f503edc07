"""The metrics, and how a number becomes a :class:`~fedprint.types.Measurement` of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.intervals import Interval
from fedprint.types import Measurement


@dataclass(frozen=True)
class MetricInfo:
    """How to read a metric: a phrase for the report, its unit and direction, and the range of its values."""

    description: str
    unit: str = "fraction"
    higher_is_better: bool = True
    low: float = 0.0
    high: float = 1.0


METRICS: Mapping[str, MetricInfo] = {
    "ap": MetricInfo("average precision of re-identification per user, averaged over users"),
    "ap_over_chance": MetricInfo("mean AP over the mean expected AP of random scores", "ratio", high=np.inf),
    "ap_over_prevalence": MetricInfo(
        "mean AP over the users' mean share of the questions (the papers' 1/U)", "ratio", high=np.inf
    ),
    "top1": MetricInfo("share of questions whose best-scored user is the right one"),
    "top5": MetricInfo("share of questions with the right user among the five best"),
    "tpr_1": MetricInfo("share of questions whose right user is named at a false positive rate of 1 %"),
    "tpr_01": MetricInfo("share of questions whose right user is named at a false positive rate of .1 %"),
    "ap_difference": MetricInfo("difference of two mean APs over the same users, paired", low=-1.0),
    "matching_ap": MetricInfo("average precision over pairs of updates, half of which come from one user"),
    "cross_modal_ap": MetricInfo(
        "average precision over pairs of an update and a user's captions, half of which belong together"
    ),
    "attribute_ap": MetricInfo("average precision per class of a user's attribute, averaged over classes"),
    "attribute_top1": MetricInfo("share of updates whose best-scored class of the attribute is the right one"),
    "mtl_gain": MetricInfo(
        "top-1 of learning user and attribute together minus that of learning each alone, seed by seed", low=-1.0
    ),
    "mtl_gain_ap": MetricInfo(
        "AP of learning user and attribute together minus that of learning each alone, seed by seed", low=-1.0
    ),
    "participation_ap": MetricInfo(
        "average precision of naming the users that took part in a round, over pairs of user and round"
    ),
    "membership_auc": MetricInfo("area under the ROC curve of separating users whose device took part from the others"),
    "membership_tpr": MetricInfo("share of the users who took part that are named at 5 % false alarms"),
    "fits_ap": MetricInfo("average precision of ranking devices by how well they fit a profile"),
    "unseen_ap": MetricInfo("average precision of recognising unseen users"),
    "unseen_auroc": MetricInfo("area under the ROC curve of separating unseen users from seen ones"),
    "accuracy": MetricInfo("share of test examples classified right"),
    "accuracy_difference": MetricInfo(
        "accuracy of one method minus that of another, paired over the same test examples", low=-1.0
    ),
    "accuracy_gain_difference": MetricInfo(
        "a difference of accuracies among many clients minus that among few, over the same test examples",
        low=-2.0,
        high=2.0,
    ),
    "mean_ap": MetricInfo("average precision per class, averaged over classes"),
    "top5_accuracy": MetricInfo("share of words among the model's five best guesses"),
    "normalised_utility": MetricInfo(
        "utility over that of the same federation without a defence (for errors: share of the gain kept)",
        "ratio",
        low=-np.inf,
        high=np.inf,
    ),
    "private_share": MetricInfo(
        "share of the gain over a model of public data alone that is kept", "ratio", low=-np.inf, high=np.inf
    ),
    "utility_lost": MetricInfo(
        "utility without a defence less that with it, paired over the test users",
        higher_is_better=False,
        low=-np.inf,
        high=np.inf,
    ),
    "private_gain": MetricInfo(
        "utility without a defence less that of public data alone, paired over the test users", low=-np.inf, high=np.inf
    ),
    "worst_users": MetricInfo("utility of the tenth of the users with the least utility", low=-np.inf, high=np.inf),
    "ap_reduction": MetricInfo(
        "share of the undefended AP that a defence takes from an adversary, paired user by user",
        higher_is_better=False,
        low=-np.inf,
    ),
    "mae": MetricInfo("mean absolute error of the predicted rating", "stars", higher_is_better=False, high=np.inf),
    "epsilon": MetricInfo(
        "privacy loss that differential privacy allows at a given delta, as an accountant bounds it",
        "nats",
        higher_is_better=False,
        high=np.inf,
    ),
    "reconstruction_success": MetricInfo("share of images reconstructed to a relative error below the threshold"),
    "reconstruction_rmse": MetricInfo(
        "relative error |x* - x| / |x| of reconstructed images (spn's rMSE: a ratio of norms)",
        "ratio",
        higher_is_better=False,
        high=np.inf,
    ),
    "reconstruction_relative_mse": MetricInfo(
        "squared relative error of reconstructed images", "ratio", higher_is_better=False, high=np.inf
    ),
    "psnr": MetricInfo("peak signal-to-noise ratio of reconstructed images", "dB", high=100.0),
    "ssim": MetricInfo("structural similarity of reconstructed images", "ratio", low=-1.0),
    "label_accuracy": MetricInfo("share of labels that the adversary recovers (the papers' membership)"),
    "tracing_accuracy": MetricInfo("share of images traced to the right participant"),
    "example_membership_auc": MetricInfo(
        "area under the ROC curve of separating images in a gradient from other images"
    ),
    "example_membership_tpr": MetricInfo(
        "share of the images in a gradient that are named at a false positive rate of at most fpr"
    ),
    "cap_reconstruction": MetricInfo(
        "CAP: mean over strengths of accuracy times relative error (higher protects better)", "ratio", high=np.inf
    ),
    "cap_membership": MetricInfo(
        "CAP: mean over strengths of accuracy times the share of labels missed (higher protects better)", "ratio"
    ),
    "cap_tracing": MetricInfo(
        "CAP: mean over strengths of accuracy times the share of images mistraced (higher protects better)", "ratio"
    ),
    "cap_difference": MetricInfo(
        "difference of two reconstruction CAP scores, paired image by image", "ratio", low=-np.inf, high=np.inf
    ),
    "rmse_difference": MetricInfo(
        "difference of the relative errors of two mechanisms, paired image by image", "ratio", low=-np.inf, high=np.inf
    ),
    "perturbation_ratio": MetricInfo(
        "norm of the gradient over that of the perturbation which the mechanism added, |B| / |E_B|",
        "ratio",
        high=np.inf,
    ),
    "gradient_cosine": MetricInfo("cosine of the gradient and the perturbation, layer by layer", "ratio", low=-1.0),
    "epsilon_lower": MetricInfo(
        "privacy loss that an audit with canaries has shown at a given delta, a lower bound",
        "nats",
        higher_is_better=False,
        high=np.inf,
    ),
    "between_clients_variance_change": MetricInfo(
        "log2 of V_c, the variance of updates over clients, in the last third of the rounds over the first",
        "doublings",
        low=-np.inf,
        high=np.inf,
    ),
    "update_scale_change": MetricInfo(
        "log2 of U_s, the mean square of the mean update, in the last third of the rounds over the first",
        "doublings",
        higher_is_better=False,
        low=-np.inf,
        high=np.inf,
    ),
    "mae_gain_over_median": MetricInfo(
        "mean absolute error of always guessing the median training rating, minus the model's, paired",
        "stars",
        low=-np.inf,
        high=np.inf,
    ),
}
"""For attack metrics higher means that users are recognised better; for CAP higher means that they are protected."""


def measurement(metric: str, interval: Interval, chance: float | None, user_ids: ArrayLike) -> Measurement:
    """Return the measurement of a metric of :data:`METRICS`; ``user_ids`` (q,) has the user of each question."""
    users = np.asarray(user_ids)
    return measured(metric, interval, chance, n_questions=len(users), n_users=len(np.unique(users)))


def measured(
    metric: str,
    interval: Interval,
    chance: float | None,
    *,
    n_questions: int,
    n_users: int,
    keys: Mapping[str, Any] | None = None,
) -> Measurement:
    """Return the measurement of a metric of :data:`METRICS` with these counts and ``keys``."""
    return Measurement(
        metric=metric,
        unit=METRICS[metric].unit,
        value=interval.value,
        lo=interval.lo,
        hi=interval.hi,
        chance=chance,
        n_questions=n_questions,
        n_users=n_users,
        keys=keys or {},
    )
