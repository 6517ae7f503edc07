"""From trials and answers to measurements: the one place that scores every analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedprint.analyses.trials import UNSEEN, AnswerSet, Trial
from fedprint.evaluation.chance import expected_ap, expected_top_k
from fedprint.evaluation.intervals import Interval, cluster_bootstrap_interval, gain_interval, hit_interval
from fedprint.evaluation.measure import beside_no_link, measure_outcomes
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.outcomes import PER_QUESTION, Outcomes, outcomes, top_k_credit
from fedprint.evaluation.statistics import (
    Statistic,
    ap_statistic,
    mean_ap_statistic,
    mean_of,
    top1_statistic,
    weighted_auroc,
    weighted_tpr,
)
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, FedprintError, Ints, Measurement

FALSE_ALARMS = 0.05
"""The false-positive rate of ``membership_tpr``; a dozen users could not distinguish a much smaller one from 0."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How intervals are made; with ``permutations`` an AP over users has its ``p_chance``."""

    seed: int
    confidence: float = 0.95
    resamples: int = 2000
    permutations: int = 0


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A trial with the truth: ``columns`` (q,) the right options, ``users`` (q,) to resample.

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
    judged = _beside_truth(trial, answers, setting)
    named = [_JUDGES[metric](metric, judged) for metric in trial.metrics if metric in _JUDGES]
    wanted = [metric for metric in trial.metrics if metric in _REIDENTIFICATION]
    if not wanted:
        return named
    averaged = _outcomes_of_users(judged)
    measured = measure_outcomes(averaged, setting.seed, confidence=setting.confidence, resamples=setting.resamples)
    if setting.permutations and "ap" in wanted and _options_are_users(judged):
        measured = beside_no_link(measured, judged.tables, judged.columns, setting.seed, setting.permutations)
    return [m for m in measured if m.metric in wanted] + named


def _beside_truth(trial: Trial, answers: AnswerSet, setting: Setting) -> Judged:
    truth, users = answers.answers[trial.rows], answers.users[trial.rows]
    tables = trial.scores if trial.scores.ndim == 3 else trial.scores[None]
    baseline = trial.baseline
    if baseline is not None and baseline.ndim == 2:
        baseline = baseline[None]
    if baseline is not None and baseline.shape != tables.shape:
        raise FedprintError(f"scores {tables.shape} and baseline {baseline.shape} of a trial must have the same shape")
    judged = Judged(
        tables=tables, baseline=baseline, options=trial.options, columns=truth, users=users, setting=setting
    )
    if not len(trial.options):  # ``same`` and ``fits``: the one column scores the answer 1
        return judged
    position = {int(option): i for i, option in enumerate(trial.options)}
    missing = sorted(set(truth.tolist()) - set(position))
    if missing:
        raise FedprintError(
            f"questions '{trial.questions}': the answer {missing[0]} is no option of the trial {dict(trial.keys)}"
        )
    columns = np.array([position[int(answer)] for answer in truth], dtype=np.int64)
    return replace(judged, columns=columns)


def _outcomes_of_users(judged: Judged) -> Outcomes:
    """Return the outcomes, averaged over seeds; the option "unseen" is no user and does not enter the mean AP."""
    every = [outcomes(table, judged.columns, judged.users) for table in judged.tables]
    means = {name: np.mean([getattr(one, name) for one in every], axis=0) for name in ("ap", *PER_QUESTION)}
    all_options = replace(every[0], **means)
    kept = judged.options[all_options.columns] != UNSEEN
    parts = {name: getattr(all_options, name)[kept] for name in ("columns", "ap", "chance_ap", "prevalence", "counts")}
    return replace(all_options, **parts)


def _options_are_users(judged: Judged) -> bool:
    """Return whether every option is a user, so that exchanging them only breaks the link to the questions."""
    return UNSEEN not in judged.options and bool((judged.options[judged.columns] == judged.users).all())


def _pairs(metric: str, judged: Judged) -> Measurement:
    """Average precision over pairs of which about half belong together, or over devices of which some fit."""
    return _binary_ap(metric, judged.scores[:, 0], judged.columns == 1, judged)


def _unseen_ap(metric: str, judged: Judged) -> Measurement:
    column = _unseen_column(judged)
    return _binary_ap(metric, judged.scores[:, column], judged.columns == column, judged)


def _binary_ap(metric: str, scores: Doubles, positive: np.ndarray, judged: Judged) -> Measurement:
    statistic = mean_ap_statistic(scores[:, None], positive[:, None])
    chance = float(expected_ap(positive.sum(), len(positive)))
    return measurement(metric, _bootstrap(metric, statistic, judged), chance, judged.users)


def _attribute_ap(metric: str, judged: Judged) -> Measurement:
    """Average precision per class, averaged over the classes that occur and over seeds."""
    truth = np.eye(judged.tables.shape[2], dtype=bool)[judged.columns]
    positives = truth.sum(0)
    chance = float(expected_ap(positives[positives > 0], len(truth)).mean())
    statistics = [mean_ap_statistic(table, truth) for table in judged.tables]
    return measurement(metric, _bootstrap(metric, mean_of(statistics), judged), chance, judged.users)


def _attribute_top1(metric: str, judged: Judged) -> Measurement:
    hits = np.mean([top_k_credit(table, judged.columns, 1) for table in judged.tables], axis=0)
    setting = judged.setting
    rng = numpy_rng(setting.seed, "interval", metric)
    interval = hit_interval(hits, judged.users, rng, confidence=setting.confidence, resamples=setting.resamples)
    return measurement(metric, interval, float(expected_top_k(1, judged.tables.shape[2])), judged.users)


def _gain(metric: str, judged: Judged) -> Measurement:
    """How much better the scores are than the baseline, seed by seed: top-1, or AP averaged over options."""
    if judged.baseline is None:
        raise FedprintError(f"'{metric}' is a paired difference; the trial needs a baseline")
    statistic_of = top1_statistic if metric == "mtl_gain" else ap_statistic
    pairs = [
        (statistic_of(table, judged.columns), statistic_of(other, judged.columns))
        for table, other in zip(judged.tables, judged.baseline, strict=True)
    ]
    setting = judged.setting
    rng = numpy_rng(setting.seed, "interval", metric)
    resamples = min(setting.resamples, 200)
    interval = gain_interval(pairs, judged.users, rng, confidence=setting.confidence, resamples=resamples)
    return measurement(metric, interval, 0.0, judged.users)


def _auroc(metric: str, judged: Judged) -> Measurement:
    """How well the option "unseen" separates users without a prior; chance is one half."""
    column = _unseen_column(judged)
    statistic = weighted_auroc(judged.scores[:, column], judged.columns == column)
    return measurement(metric, _bootstrap(metric, statistic, judged), 0.5, judged.users)


def _membership_auc(metric: str, judged: Judged) -> Measurement:
    """How well scores separate members from others; chance is one half."""
    statistic = weighted_auroc(judged.scores[:, 0], judged.columns == 1)
    return measurement(metric, _bootstrap(metric, statistic, judged), 0.5, judged.users)


def _membership_tpr(metric: str, judged: Judged) -> Measurement:
    """Share of members above all but :data:`FALSE_ALARMS` of the others.

    Of N others floor(N / 20) may be above; random scores put (floor(N / 20) + 1) / (N + 1) of the members there.
    """
    member = judged.columns == 1
    others = int((~member).sum())
    chance = (math.floor(FALSE_ALARMS * others) + 1) / (others + 1)
    statistic = weighted_tpr(judged.scores[:, 0], member, FALSE_ALARMS)
    return measurement(metric, _bootstrap(metric, statistic, judged), chance, judged.users)


def _unseen_column(judged: Judged) -> int:
    columns = np.flatnonzero(judged.options == UNSEEN)
    if not len(columns):
        raise FedprintError("a trial without the option 'unseen' has no unseen users to detect")
    return int(columns[0])


def _bootstrap(metric: str, statistic: Statistic, judged: Judged) -> Interval:
    rng = numpy_rng(judged.setting.seed, "interval", metric)
    resamples = min(judged.setting.resamples, 400)  # a resample costs as much as there are questions
    return cluster_bootstrap_interval(
        statistic, judged.users, rng, confidence=judged.setting.confidence, resamples=resamples
    )


_REIDENTIFICATION = ("ap", "ap_over_chance", "ap_over_prevalence", *PER_QUESTION)
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
