"""From trials and answers to measurements: the one place that scores every analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedprint.analyses.trials import UNSEEN, AnswerSet, Trial
from fedprint.evaluation.chance import expected_ap, expected_top_k
from fedprint.evaluation.gains import ap_statistic, gain_interval, mean_of, top1_statistic
from fedprint.evaluation.intervals import Interval, cluster_bootstrap_interval
from fedprint.evaluation.measure import hit_interval, measure_outcomes
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.outcomes import Outcomes, outcomes, top_k_credit
from fedprint.evaluation.utility import mean_ap_statistic
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, FedprintError, Ints, Measurement

FALSE_ALARMS = 0.05
"""The false-positive rate of ``membership_tpr``: with some dozen users none much smaller can be told from 0."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How intervals are made."""

    seed: int
    confidence: float = 0.95
    resamples: int = 2000


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A trial beside the truth: ``columns`` (q,) the right option, ``users`` (q,) to resample.

    ``tables`` (s, q, m): the answers, once per seed of the attack's training; ``baseline`` likewise, or None.
    """

    tables: Doubles
    baseline: Doubles | None
    options: Ints
    columns: Ints
    users: Ints
    setting: Setting

    @property
    def scores(self) -> Doubles:
        """The one table (q, m) of an attack that answers once."""
        if len(self.tables) != 1:
            raise FedprintError(f"{len(self.tables)} tables of answers, one per seed, for a metric that takes one")
        one: Doubles = self.tables[0]
        return one


def judge(trial: Trial, answers: AnswerSet, setting: Setting) -> list[Measurement]:
    """Return the measurements that the trial asks for (``trial.metrics``), without keys.

    Raises:
        FedprintError: an answer is no option of the trial, or a metric is unknown.
    """
    unknown = set(trial.metrics) - set(_JUDGES) - set(_REIDENTIFICATION)
    if unknown:
        raise FedprintError(f"no way to judge {sorted(unknown)}; choose of {sorted({*_JUDGES, *_REIDENTIFICATION})}")
    found = _beside_truth(trial, answers, setting)
    named = [_JUDGES[metric](metric, found) for metric in trial.metrics if metric in _JUDGES]
    wanted = [metric for metric in trial.metrics if metric in _REIDENTIFICATION]
    if not wanted:
        return named
    seen = _outcomes_of_users(found)
    measured = measure_outcomes(seen, setting.seed, confidence=setting.confidence, resamples=setting.resamples)
    return [m for m in measured if m.metric in wanted] + named


def _beside_truth(trial: Trial, answers: AnswerSet, setting: Setting) -> Judged:
    right, users = answers.answers[trial.rows], answers.users[trial.rows]
    tables = trial.scores if trial.scores.ndim == 3 else trial.scores[None]
    baseline = trial.baseline
    if baseline is not None and baseline.ndim == 2:
        baseline = baseline[None]
    if baseline is not None and baseline.shape != tables.shape:
        raise FedprintError(f"scores {tables.shape} and baseline {baseline.shape} of a trial must have the same shape")
    found = Judged(tables=tables, baseline=baseline, options=trial.options, columns=right, users=users, setting=setting)
    if not len(trial.options):  # ``same`` and ``fits``: the one column scores the answer 1
        return found
    place = {int(option): i for i, option in enumerate(trial.options)}
    missing = sorted(set(right.tolist()) - set(place))
    if missing:
        raise FedprintError(
            f"questions '{trial.questions}': the answer {missing[0]} is no option of the trial {dict(trial.keys)}"
        )
    columns = np.array([place[int(answer)] for answer in right], dtype=np.int64)
    return replace(found, columns=columns)


def _outcomes_of_users(found: Judged) -> Outcomes:
    """Return the outcomes, averaged over seeds; the option "unseen" is no user and does not enter the mean AP."""
    every = [outcomes(table, found.columns, found.users) for table in found.tables]
    means = {name: np.mean([getattr(one, name) for one in every], axis=0) for name in ("ap", "top1", "top5")}
    all_options = replace(every[0], **means)
    kept = found.options[all_options.columns] != UNSEEN
    parts = {name: getattr(all_options, name)[kept] for name in ("columns", "ap", "chance_ap", "prevalence", "counts")}
    return replace(all_options, **parts)


def _pairs(metric: str, found: Judged) -> Measurement:
    """Average precision over pairs of which about half belong together, or over devices of which some fit."""
    return _binary_ap(metric, found.scores[:, 0], found.columns == 1, found)


def _unseen_ap(metric: str, found: Judged) -> Measurement:
    column = _unseen_column(found)
    return _binary_ap(metric, found.scores[:, column], found.columns == column, found)


def _binary_ap(metric: str, scores: Doubles, positive: np.ndarray, found: Judged) -> Measurement:
    statistic = mean_ap_statistic(scores[:, None], positive[:, None])
    chance = float(expected_ap(positive.sum(), len(positive)))
    return measurement(metric, _bootstrap(metric, statistic, found), chance, found.users)


def _attribute_ap(metric: str, found: Judged) -> Measurement:
    """Average precision per class, averaged over the classes that occur and over seeds."""
    truth = np.eye(found.tables.shape[2], dtype=bool)[found.columns]
    positives = truth.sum(0)
    chance = float(expected_ap(positives[positives > 0], len(truth)).mean())
    statistics = [mean_ap_statistic(table, truth) for table in found.tables]
    return measurement(metric, _bootstrap(metric, mean_of(statistics), found), chance, found.users)


def _attribute_top1(metric: str, found: Judged) -> Measurement:
    hits = np.mean([top_k_credit(table, found.columns, 1) for table in found.tables], axis=0)
    setting = found.setting
    rng = numpy_rng(setting.seed, "interval", metric)
    interval = hit_interval(hits, found.users, rng, confidence=setting.confidence, resamples=setting.resamples)
    return measurement(metric, interval, float(expected_top_k(1, found.tables.shape[2])), found.users)


def _gain(metric: str, found: Judged) -> Measurement:
    """How much better the scores are than the baseline, seed by seed: top-1, or AP averaged over options."""
    if found.baseline is None:
        raise FedprintError(f"'{metric}' is a paired difference; the trial needs a baseline")
    statistic_of = top1_statistic if metric == "mtl_gain" else ap_statistic
    pairs = [
        (statistic_of(table, found.columns), statistic_of(other, found.columns))
        for table, other in zip(found.tables, found.baseline, strict=True)
    ]
    setting = found.setting
    rng = numpy_rng(setting.seed, "interval", metric)
    resamples = min(setting.resamples, 200)
    interval = gain_interval(pairs, found.users, rng, confidence=setting.confidence, resamples=resamples)
    return measurement(metric, interval, 0.0, found.users)


def _auroc(metric: str, found: Judged) -> Measurement:
    """How well the option "unseen" separates users without a prior; chance is one half."""
    column = _unseen_column(found)
    statistic = weighted_auroc(found.scores[:, column], found.columns == column)
    return measurement(metric, _bootstrap(metric, statistic, found), 0.5, found.users)


def weighted_auroc(scores: Doubles, positive: np.ndarray) -> Callable[[Doubles], float]:
    """Return the area under the ROC curve (ties count half) as a function of weights (n,); NaN without both classes."""
    values, place = np.unique(scores, return_inverse=True)

    def statistic(weights: Doubles) -> float:
        p = np.bincount(place, weights=weights * positive, minlength=len(values))
        n = np.bincount(place, weights=weights * ~positive, minlength=len(values))
        below = np.cumsum(n) - n
        total = p.sum() * n.sum()
        return float((p * (below + n / 2)).sum() / total) if total else float("nan")

    return statistic


def _membership_auc(metric: str, found: Judged) -> Measurement:
    """How well scores separate members from others; chance is one half."""
    statistic = weighted_auroc(found.scores[:, 0], found.columns == 1)
    return measurement(metric, _bootstrap(metric, statistic, found), 0.5, found.users)


def _membership_tpr(metric: str, found: Judged) -> Measurement:
    """Share of members above all but :data:`FALSE_ALARMS` of the others.

    Of N others floor(N / 20) may be above: random scores put (that + 1) / (N + 1) of the members there.
    """
    member = found.columns == 1
    others = int((~member).sum())
    chance = (math.floor(FALSE_ALARMS * others) + 1) / (others + 1)
    statistic = weighted_tpr(found.scores[:, 0], member, FALSE_ALARMS)
    return measurement(metric, _bootstrap(metric, statistic, found), chance, found.users)


def weighted_tpr(scores: Doubles, positive: np.ndarray, most: float) -> Callable[[Doubles], float]:
    """Return the true-positive rate at a false-positive rate of at most ``most``, as a function of weights (n,).

    Calls everyone positive whose score is above a threshold, the lowest that keeps to ``most``; equal scores are called
    together. NaN without both classes.
    """
    values, place = np.unique(scores, return_inverse=True)

    def statistic(weights: Doubles) -> float:
        p = np.bincount(place, weights=weights * positive, minlength=len(values))[::-1]
        n = np.bincount(place, weights=weights * ~positive, minlength=len(values))[::-1]
        if not (p.sum() and n.sum()):
            return float("nan")
        allowed = np.cumsum(n) <= most * n.sum() * (1 + 1e-9)
        return float(p[allowed].sum() / p.sum())

    return statistic


def _unseen_column(found: Judged) -> int:
    places = np.flatnonzero(found.options == UNSEEN)
    if not len(places):
        raise FedprintError("a trial without the option 'unseen' has no unseen users to detect")
    return int(places[0])


def _bootstrap(metric: str, statistic: Callable[[Doubles], float], found: Judged) -> Interval:
    rng = numpy_rng(found.setting.seed, "interval", metric)
    resamples = min(found.setting.resamples, 400)  # sorting is done once, but each resample walks all questions
    return cluster_bootstrap_interval(
        statistic, found.users, rng, confidence=found.setting.confidence, resamples=resamples
    )


_REIDENTIFICATION = ("ap", "ap_over_chance", "ap_over_prevalence", "top1", "top5")
_JUDGES: Mapping[str, Callable[[str, Judged], Measurement]] = {
    "matching_ap": _pairs,
    "cross_modal_ap": _pairs,
    "fits_ap": _pairs,
    "participation_ap": _pairs,
    "membership_auc": _membership_auc,
    "membership_tpr": _membership_tpr,
    "attribute_ap": _attribute_ap,
    "attribute_top1": _attribute_top1,
    "mtl_gain": _gain,
    "mtl_gain_ap": _gain,
    "unseen_ap": _unseen_ap,
    "unseen_auroc": _auroc,
}
