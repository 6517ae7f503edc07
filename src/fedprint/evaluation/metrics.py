"""The metrics of the bench and how a number of one of them becomes a :class:`~fedprint.types.Measurement`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.intervals import Interval
from fedprint.types import Measurement


@dataclass(frozen=True, kw_only=True)
class MetricInfo:
    """How to read a metric: a phrase for the report, ``unit``, direction, and the range its values can take."""

    description: str
    unit: str = "fraction"
    higher_is_better: bool = True
    low: float = 0.0
    high: float = 1.0


METRICS: Mapping[str, MetricInfo] = {
    "ap": MetricInfo(description="average precision of re-identification per user, averaged over users"),
    "ap_over_chance": MetricInfo(
        unit="ratio",
        description="mean AP over the mean expected AP of random scores",
        high=np.inf,
    ),
    "ap_over_prevalence": MetricInfo(
        unit="ratio",
        description="mean AP over the users' mean share of the questions (the papers' 1/U)",
        high=np.inf,
    ),
    "top1": MetricInfo(description="share of questions whose best-scored user is the right one"),
    "top5": MetricInfo(description="share of questions with the right user among the five best"),
    "ap_difference": MetricInfo(description="difference of two mean APs over the same users, paired", low=-1.0),
    "matching_ap": MetricInfo(description="average precision over pairs of updates, half of which come from one user"),
    "cross_modal_ap": MetricInfo(
        description="average precision over pairs of an update and a user's captions, half of which belong together",
    ),
    "attribute_ap": MetricInfo(description="average precision per class of a user's attribute, averaged over classes"),
    "attribute_top1": MetricInfo(
        description="share of updates whose best-scored class of the attribute is the right one",
    ),
    "mtl_gain": MetricInfo(
        description="top-1 of learning user and attribute together minus that of learning each alone, seed by seed",
        low=-1.0,
    ),
    "mtl_gain_ap": MetricInfo(
        description="AP of learning user and attribute together minus that of learning each alone, seed by seed",
        low=-1.0,
    ),
    "participation_ap": MetricInfo(
        description="average precision of naming the users that took part in a round, over pairs of user and round",
    ),
    "membership_auc": MetricInfo(
        description="area under the ROC curve of telling users whose device took part from those whose did not",
    ),
    "membership_tpr": MetricInfo(description="share of the users that took part who are named at 5 % false alarms"),
    "fits_ap": MetricInfo(description="average precision of ranking devices by how well they fit a profile"),
    "unseen_ap": MetricInfo(description="average precision of calling users unseen who are"),
    "unseen_auroc": MetricInfo(description="area under the ROC curve of calling users unseen who are"),
    "accuracy": MetricInfo(description="share of test examples classified right"),
    "accuracy_difference": MetricInfo(
        description="accuracy of one method minus that of another, paired over the same test examples", low=-1.0
    ),
    "accuracy_gain_difference": MetricInfo(
        description="a difference of accuracies among many clients minus that among few, over the same test examples",
        low=-2.0,
        high=2.0,
    ),
    "mean_ap": MetricInfo(description="average precision per class, averaged over classes"),
    "top5_accuracy": MetricInfo(description="share of words among the model's five best guesses"),
    "normalised_utility": MetricInfo(
        unit="ratio",
        description="utility over that of the same federation without a defence (for errors: share of the gain kept)",
        low=-np.inf,
        high=np.inf,
    ),
    "ap_reduction": MetricInfo(
        higher_is_better=False,
        description="share of the undefended AP that a defence takes from an adversary, paired user by user",
        low=-np.inf,
    ),
    "mae": MetricInfo(
        unit="stars",
        higher_is_better=False,
        description="mean absolute error of the predicted rating",
        high=np.inf,
    ),
    "epsilon": MetricInfo(
        unit="nats",
        higher_is_better=False,
        description="privacy loss that differential privacy allows at a given delta, as an accountant bounds it",
        high=np.inf,
    ),
    "reconstruction_success": MetricInfo(
        description="share of images reconstructed to a relative error below the threshold",
    ),
    "reconstruction_rmse": MetricInfo(
        unit="ratio",
        higher_is_better=False,
        description="relative error |x* - x| / |x| of reconstructed images (spn's rMSE: a ratio of norms)",
        high=np.inf,
    ),
    "reconstruction_relative_mse": MetricInfo(
        unit="ratio",
        higher_is_better=False,
        description="squared relative error of reconstructed images",
        high=np.inf,
    ),
    "psnr": MetricInfo(unit="dB", description="peak signal-to-noise ratio of reconstructed images", high=100.0),
    "ssim": MetricInfo(unit="ratio", description="structural similarity of reconstructed images", low=-1.0),
    "label_accuracy": MetricInfo(description="share of labels that the adversary recovers (the papers' membership)"),
    "tracing_accuracy": MetricInfo(description="share of images traced to the right participant"),
    "example_membership_auc": MetricInfo(
        description="area under the ROC curve of telling images in a gradient from images that are not in it",
    ),
    "example_membership_tpr": MetricInfo(
        description="share of the images in a gradient that are named at a false positive rate of at most fpr",
    ),
    "cap_reconstruction": MetricInfo(
        unit="ratio",
        description="CAP: mean over strengths of accuracy times relative error (higher protects better)",
        high=np.inf,
    ),
    "cap_membership": MetricInfo(
        unit="ratio",
        description="CAP: mean over strengths of accuracy times the share of labels missed (higher protects better)",
    ),
    "cap_tracing": MetricInfo(
        unit="ratio",
        description="CAP: mean over strengths of accuracy times the share of images mistraced (higher protects better)",
    ),
    "cap_difference": MetricInfo(
        unit="ratio",
        description="difference of two reconstruction CAP scores, paired image by image",
        low=-np.inf,
        high=np.inf,
    ),
    "rmse_difference": MetricInfo(
        unit="ratio",
        description="difference of the relative errors of two mechanisms, paired image by image",
        low=-np.inf,
        high=np.inf,
    ),
    "perturbation_ratio": MetricInfo(
        unit="ratio",
        description="norm of the gradient over that of the perturbation which the mechanism added, |B| / |E_B|",
        high=np.inf,
    ),
    "gradient_cosine": MetricInfo(
        unit="ratio",
        description="cosine of the gradient and the perturbation, layer by layer",
        low=-1.0,
    ),
    "epsilon_lower": MetricInfo(
        unit="nats",
        higher_is_better=False,
        description="privacy loss that an audit with canaries has shown at a given delta, a lower bound",
        high=np.inf,
    ),
    "between_clients_variance_change": MetricInfo(
        unit="doublings",
        description="log2 of V_c, the variance of updates over clients, in the last third of the rounds over the first",
        low=-np.inf,
        high=np.inf,
    ),
    "update_scale_change": MetricInfo(
        unit="doublings",
        higher_is_better=False,
        description="log2 of U_s, the mean square of the mean update, in the last third of the rounds over the first",
        low=-np.inf,
        high=np.inf,
    ),
    "mae_gain_over_median": MetricInfo(
        unit="stars",
        description="mean absolute error of always guessing the median training rating, minus the model's, paired",
        low=-np.inf,
        high=np.inf,
    ),
}
"""Attack metrics are read from the adversary's side: higher = users are recognised better. CAP is the defender's."""


def measurement(metric: str, interval: Interval, chance: float | None, user_ids: ArrayLike) -> Measurement:
    """Return the measurement of a metric of :data:`METRICS`; ``user_ids`` (q,) has the user of each question."""
    users = np.asarray(user_ids)
    return Measurement(
        metric=metric,
        unit=METRICS[metric].unit,
        value=interval.value,
        lo=interval.lo,
        hi=interval.hi,
        chance=chance,
        n_questions=len(users),
        n_users=len(np.unique(users)),
    )
