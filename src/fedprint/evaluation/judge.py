"""From trials and answers to measurements: the one place that scores every analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedprint.analyses.trials import UNSEEN, AnswerSet, Trial
from fedprint.evaluation.chance import FloatArray, expected_ap, expected_top_k
from fedprint.evaluation.intervals import Interval, cluster_bootstrap_interval
from fedprint.evaluation.measure import hit_interval, measure_outcomes
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.outcomes import IntArray, Outcomes, outcomes, top_k_credit
from fedprint.evaluation.utility import mean_ap_statistic
from fedprint.rng import numpy_rng
from fedprint.types import FedprintError, Measurement


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How intervals are made."""

    seed: int
    confidence: float = 0.95
    resamples: int = 2000


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A trial beside the truth: ``scores`` (q, m), ``columns`` (q,) the right option, ``users`` (q,) to resample."""

    scores: FloatArray
    options: IntArray
    columns: IntArray
    users: IntArray
    setting: Setting


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
    if not len(trial.options):  # ``same``: the one column scores the answer 1
        return Judged(scores=trial.scores, options=trial.options, columns=right, users=users, setting=setting)
    place = {int(option): i for i, option in enumerate(trial.options)}
    missing = sorted(set(right.tolist()) - set(place))
    if missing:
        raise FedprintError(
            f"questions '{trial.questions}': the answer {missing[0]} is no option of the trial {dict(trial.keys)}"
        )
    columns = np.array([place[int(answer)] for answer in right], dtype=np.int64)
    return Judged(scores=trial.scores, options=trial.options, columns=columns, users=users, setting=setting)


def _outcomes_of_users(found: Judged) -> Outcomes:
    """Return the outcomes; the option "unseen" is no user and does not enter the mean AP."""
    all_options = outcomes(found.scores, found.columns, found.users)
    kept = found.options[all_options.columns] != UNSEEN
    parts = {name: getattr(all_options, name)[kept] for name in ("columns", "ap", "chance_ap", "prevalence", "counts")}
    return replace(all_options, **parts)


def _pairs(metric: str, found: Judged) -> Measurement:
    """Average precision over pairs of which about half belong together."""
    return _binary_ap(metric, found.scores[:, 0], found.columns == 1, found)


def _unseen_ap(metric: str, found: Judged) -> Measurement:
    column = _unseen_column(found)
    return _binary_ap(metric, found.scores[:, column], found.columns == column, found)


def _binary_ap(metric: str, scores: FloatArray, positive: np.ndarray, found: Judged) -> Measurement:
    statistic = mean_ap_statistic(scores[:, None], positive[:, None])
    chance = float(expected_ap(positive.sum(), len(positive)))
    return measurement(metric, _bootstrap(metric, statistic, found), chance, found.users)


def _attribute_ap(metric: str, found: Judged) -> Measurement:
    """Average precision per class, averaged over the classes that occur."""
    truth = np.eye(found.scores.shape[1], dtype=bool)[found.columns]
    positives = truth.sum(0)
    chance = float(expected_ap(positives[positives > 0], len(truth)).mean())
    return measurement(metric, _bootstrap(metric, mean_ap_statistic(found.scores, truth), found), chance, found.users)


def _attribute_top1(metric: str, found: Judged) -> Measurement:
    hits = top_k_credit(found.scores, found.columns, 1)
    setting = found.setting
    rng = numpy_rng(setting.seed, "interval", metric)
    interval = hit_interval(hits, found.users, rng, confidence=setting.confidence, resamples=setting.resamples)
    return measurement(metric, interval, float(expected_top_k(1, found.scores.shape[1])), found.users)


def _auroc(metric: str, found: Judged) -> Measurement:
    """How well the option "unseen" separates users without a prior; chance is one half."""
    column = _unseen_column(found)
    statistic = weighted_auroc(found.scores[:, column], found.columns == column)
    return measurement(metric, _bootstrap(metric, statistic, found), 0.5, found.users)


def weighted_auroc(scores: FloatArray, positive: np.ndarray) -> Callable[[FloatArray], float]:
    """Return the area under the ROC curve (ties count half) as a function of weights (n,); NaN without both classes."""
    values, place = np.unique(scores, return_inverse=True)

    def statistic(weights: FloatArray) -> float:
        p = np.bincount(place, weights=weights * positive, minlength=len(values))
        n = np.bincount(place, weights=weights * ~positive, minlength=len(values))
        below = np.cumsum(n) - n
        total = p.sum() * n.sum()
        return float((p * (below + n / 2)).sum() / total) if total else float("nan")

    return statistic


def _unseen_column(found: Judged) -> int:
    places = np.flatnonzero(found.options == UNSEEN)
    if not len(places):
        raise FedprintError("a trial without the option 'unseen' has no unseen users to detect")
    return int(places[0])


def _bootstrap(metric: str, statistic: Callable[[FloatArray], float], found: Judged) -> Interval:
    rng = numpy_rng(found.setting.seed, "interval", metric)
    resamples = min(found.setting.resamples, 400)  # sorting is done once, but each resample walks all questions
    return cluster_bootstrap_interval(
        statistic, found.users, rng, confidence=found.setting.confidence, resamples=resamples
    )


_REIDENTIFICATION = ("ap", "ap_over_chance", "ap_over_prevalence", "top1", "top5")
_JUDGES: Mapping[str, Callable[[str, Judged], Measurement]] = {
    "matching_ap": _pairs,
    "cross_modal_ap": _pairs,
    "attribute_ap": _attribute_ap,
    "attribute_top1": _attribute_top1,
    "unseen_ap": _unseen_ap,
    "unseen_auroc": _auroc,
}
