"""How the report speaks: numbers, conditions and the verdict, generated from the measurements."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedprint.evaluation.rows import Row

MISSING = "\u2013"
NBSP = "\u00a0"
CLEAR = 0.05
"""A permutation p above this is no evidence of a link."""

PRIORS: Mapping[str, str] = {
    "random": "The adversary holds a random half of each user's data; devices train on the other half.",
    "chrono": "The adversary holds each user's earlier data; devices train on the later data.",
    "photoset": "The adversary holds whole albums of each user; devices train on the other albums.",
    "iid": "Every device's examples are replaced by draws from the pool of all users: an attack should find nothing.",
}
VIEWS: Mapping[str, str] = {
    "local": "each update as it left the device (a curious server)",
    "central": "only the global models that are released, after server noise",
    "aggregate": "only sums over a cohort (secure aggregation), before any server noise",
}
ADVERSARIES: Mapping[str, str] = {
    "naive": "does not know the defence",
    "adaptive": "knows the defence and applies it to the data of its own devices",
}
LEARNING: Mapping[str, str] = {
    "offline": "With and without a defence the adversary trains the same number of clean shadow devices from the "
    "recorded global models, so that APs with and without a defence compare.",
    "records": "Where its own devices took part without a defence, the adversary learns from their recorded updates. "
    "These are often fewer than the shadow devices that it trains against a defence: AP without a defence may be too "
    "low, and defences may look better than they are.",
}
WORLDS: Mapping[str, str] = {
    "closed": "has prior data of every user",
    "open": "has prior data of some users only",
}
ATTACKS: Mapping[str, str] = {
    "chance": "random scores",
    "knn": "nearest neighbours (paper)",
    "knn-std": "nearest neighbours, standardised",
    "svm": "linear SVM (paper)",
    "svm-hard": "linear SVM, hard predictions",
    "svm-std": "linear SVM, standardised",
    "mlp": "one hidden layer (paper)",
    "mlp-std": "one hidden layer, standardised",
    "mlp-tuned": "tuned MLP, several layers",
    "ridge": "ridge regression, closed form",
    "ridge-means": "the same on means of linked updates",
    "count": "side channel: number of examples",
    "norm": "side channel: length of the update",
    "participation": "side channel: rounds that it took part in",
    "ridge+sides": "ridge with count and norm",
    "selected": "the attacker chosen in each seed",
}
LINKAGES: Mapping[str, str] = {"update": "one update", "device": "device pooled"}
TRAININGS: Mapping[str, str] = {
    "federated": "federated",
    "centralised": "centralised training",
    "knn": "10 nearest neighbours",
    "median": "median guess",
    "chance": "random scores",
}
METRIC_TITLES: Mapping[str, str] = {
    "ap": "AP",
    "ap_over_chance": "AP over chance",
    "ap_over_prevalence": "AP over 1/U",
    "top1": "top-1",
    "top5": "top-5",
    "tpr_1": "TPR at FPR 1 %",
    "tpr_01": "TPR at FPR .1 %",
    "accuracy": "accuracy",
    "mean_ap": "mean AP over classes",
    "top5_accuracy": "top-5 accuracy",
    "mae": "mean absolute error (lower is better)",
    "mae_gain_over_median": "gain over the median guess",
    "mtl_gain": "gain in top-1 by learning both together",
    "mtl_gain_ap": "gain in AP by learning both together",
    "fits_ap": "AP of devices that fit",
    "participation_ap": "AP of “took part”",
}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with all that is needed to read it; fractions stay in [0, 1] and are printed as per cent."""

    metric: str
    unit: str
    value: float | None
    lo: float | None
    hi: float | None
    chance: float | None
    n_questions: int
    n_users: int
    n_seeds: int = 1


@dataclass(frozen=True, kw_only=True)
class NoLink:
    """What the chosen attacker would score without any link (permutation null) and how likely the AP was then."""

    null_mean: float
    p_high: float


def estimate(row: Row) -> Estimate:
    """Return the numbers of a measurement row."""
    return Estimate(
        metric=row["metric"],
        unit=row["unit"],
        value=row.get("value"),
        lo=row.get("lo"),
        hi=row.get("hi"),
        chance=row.get("chance"),
        n_questions=int(row["n_questions"]),
        n_users=int(row["n_users"]),
        n_seeds=seed_count(row),
    )


def seed_count(row: Row) -> int:
    """Return how many seeds a row pools; the row of a single seed says nothing of it."""
    return int(row.get("n_seeds") or 1)


def digits_for(value: float | None, unit: str) -> int:
    """Return how many decimals a number gets: one in per cent, ratios none from 10 on and two below 2, stars three."""
    if unit == "ratio":
        return 1 if value is None else 0 if value >= 10 else 1 if value >= 2 else 2
    return 3 if unit == "stars" else 1


def number(value: float | None, unit: str, digits: int | None = None) -> str:
    """Return a number without its unit sign; fractions in per cent, a dash for None."""
    if value is None:
        return MISSING
    places = digits_for(value, unit) if digits is None else digits
    return f"{100 * value if unit == 'fraction' else value:.{places}f}"


def with_unit(value: float | None, unit: str, digits: int | None = None) -> str:
    """Return a number with its unit: ``84.2 %``, ``49×``, ``0.716 stars``."""
    if value is None:
        return MISSING
    signs = {"fraction": f"{NBSP}%", "ratio": "×"}
    return number(value, unit, digits) + signs.get(unit, f"{NBSP}{unit}")


def interval(estimate: Estimate, digits: int | None = None) -> str:
    """Return ``[79.1, 88.0]`` with the decimals of the value."""
    places = digits_for(estimate.value, estimate.unit) if digits is None else digits
    return f"[{number(estimate.lo, estimate.unit, places)}, {number(estimate.hi, estimate.unit, places)}]"


def valued(estimate: Estimate) -> str:
    """Return ``84.2 % [79.1, 88.0]``."""
    return f"{with_unit(estimate.value, estimate.unit)} {interval(estimate)}"


def shown(row: Row) -> str:
    """Return a row as :func:`valued`."""
    return valued(estimate(row))


def ranged(row: Mapping[str, Any] | None, spec: str = ".2f", factor: float = 1.0, sign: str = "") -> str:
    """Return ``0.57 [0.50, 0.66]`` in the format ``spec``; a dash for None and for what is not finite."""
    if row is None or row["value"] is None:
        return MISSING
    numbers = [row[end] for end in ("value", "lo", "hi")]
    value, lo, hi = (MISSING if x is None or not math.isfinite(x) else f"{factor * x:{spec}}" for x in numbers)
    return f"{value}{sign} [{lo}, {hi}]"


def percent(row: Mapping[str, Any] | None, spec: str = ".0f") -> str:
    """Return a fraction as ``62 % [41, 80]``."""
    return ranged(row, spec, 100.0, " %")


def csv_text(lines: Iterable[Iterable[Any]]) -> str:
    """Return lines of cells as CSV; None is an empty cell."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def times(estimate: Estimate) -> str:
    """Return value over chance as a ratio, ``49``; a dash without a positive chance."""
    if estimate.value is None or not estimate.chance:
        return MISSING
    ratio = estimate.value / estimate.chance
    return number(ratio, "ratio", 0 if ratio >= 10 else 1)


def people(count: int) -> str:
    """Return ``1 user`` or ``100 users``."""
    return f"{count} user" if count == 1 else f"{count} users"


def seeds(count: int) -> str:
    """Return ``1 seed`` or ``3 seeds``."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


def above_chance(ap: Estimate, null: NoLink | None) -> bool:
    """Return whether the interval lies above chance and the permutation null, where there is one, is rejected too."""
    if ap.lo is None or ap.chance is None:
        return False
    return ap.lo > ap.chance and (null is None or null.p_high < CLEAR)


LOWER_BOUND = 0.01
"""An AP that the last doubling of the adversary's effort raised by this much or more is a lower bound."""


def still_rises(gain: float | None) -> bool:
    """Return whether the last doubling of effort raised an AP so much that it is a lower bound; None: not tried."""
    return gain is not None and gain >= LOWER_BOUND


FEW_USERS = 6
"""With fewer, an attack that is right for every user could be right for half of all (Clopper-Pearson, 95 %)."""


def few_users(count: int) -> str | None:
    """Return what to say of a number of users that bears no conclusion, None of enough."""
    if count >= FEW_USERS:
        return None
    return f"{people(count)} bear no conclusion about others: attack {FEW_USERS} or more."


def verdict(dataset: str, prior: str, ap: Estimate, null: NoLink | None = None) -> str:
    """Return one sentence on single updates of the attacker that was chosen on prior data; of few users, a second."""
    said = _verdict(dataset, prior, ap, null)
    return f"{said} {few}" if (few := few_users(ap.n_users)) else said


def _verdict(dataset: str, prior: str, ap: Estimate, null: NoLink | None) -> str:
    about = f"({people(ap.n_users)}, {seeds(ap.n_seeds)}, {prior} prior; the attacker was chosen before any answer)"
    if ap.value is None:
        return f"Whether an anonymous update of {dataset} identifies its sender could not be measured {about}."
    if above_chance(ap, null):
        return f"An anonymous update of {dataset} identifies its sender with {_against(ap)} {about}."
    what = f"An anonymous update of {dataset} was not shown to identify its sender"
    return f"{what}: {_against(ap)}{_why_not(ap, null)} {about}."


def verdict_pooled(ap: Estimate, null: NoLink | None = None) -> str:
    """Return the sentence on all updates of a device together; it says what that assumes."""
    subject = "All updates of a device together (possible where pseudonyms persist)"
    if ap.value is None:
        return f"{subject}: nothing could be measured."
    if above_chance(ap, null):
        return f"{subject} identify the sender with {_against(ap)}."
    return f"{subject} were not shown to identify the sender either: {_against(ap)}{_why_not(ap, null)}."


def verdict_beyond(chosen: Estimate, largest: tuple[str, Estimate] | None, gain: Estimate | None) -> str:
    """Return what the chosen attacker's AP does not say: the largest AP of another attack, and the want of effort.

    ``gain`` is what the last doubling of the adversary's effort raised its AP by. Empty where there is neither.
    """
    said = []
    if largest is not None and (largest[1].value or 0.0) > (chosen.value or 0.0):
        most = f"Of all attacks {largest[0]} has the largest AP, {valued(largest[1])}"
        said.append(f"{most}: an upper estimate, picked after the fact.")
    if gain is not None and still_rises(gain.value):
        said.append(f"Twice the effort off line raised it by {valued(gain)}, so it is a lower bound.")
    return " ".join(said)


def _against(ap: Estimate) -> str:
    return f"average precision {valued(ap)}; random guessing gets {with_unit(ap.chance, 'fraction', 1)}"


def _why_not(ap: Estimate, null: NoLink | None) -> str:
    if ap.lo is None or ap.hi is None or ap.chance is None:
        return ""
    if ap.hi < ap.chance:
        return "; the interval lies below that, which points to a defect of the bench"
    if ap.lo <= ap.chance or null is None:
        return "; the interval includes that"
    where = with_unit(null.null_mean, "fraction", 1)
    return f"; updates that merely resemble one another get {where} without any link (p = {null.p_high:.2g})"


def for_a_user(epsilon: float | None) -> str:
    """Return in words what stands beside the epsilon of a device; None: nothing here prices a user."""
    return f"{'not priced' if epsilon is None else f'{epsilon:.1f}'} for a user with both devices"
