"""Re-identification as measurements, in total, per user and over training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.chance import expected_top_k
from fedprint.evaluation.intervals import hit_interval, mean_interval
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.outcomes import Outcomes, check_ranking, outcomes
from fedprint.evaluation.shuffled import permutation_test
from fedprint.rng import numpy_rng
from fedprint.types import FedprintError, Measurement


@dataclass(frozen=True, kw_only=True)
class UserAp:
    """One user's average precision (fraction), from ``n_updates`` questions, and that of random scores."""

    user_id: int
    ap: float
    n_updates: int
    chance: float


@dataclass(frozen=True, kw_only=True)
class RoundBin:
    """The mean AP among the questions of rounds ``first`` to ``last``, both included; None values in an empty bin."""

    first: int
    last: int
    ap: Measurement | None


def measure_reidentification(
    scores: ArrayLike,
    truth: ArrayLike,
    user_ids: ArrayLike,
    seed: int,
    confidence: float = 0.95,
    resamples: int = 2000,
    permutations: int = 0,
) -> list[Measurement]:
    """Return ap, ap_over_chance, ap_over_prevalence, top1, top5, tpr_1 and tpr_01 of a ranking (papers.md 2.4).

    ``scores`` (q, m), higher = more likely; ``truth`` (q,) the column of the right option; ``user_ids`` (q,) the user
    behind each question. Fractions and ratios; intervals over users (papers.md 5). The ratios divide by a constant, so
    their intervals are those of the AP, scaled. With ``permutations`` the AP has its ``p_chance``.
    """
    answered = outcomes(scores, truth, user_ids)
    measured = measure_outcomes(answered, seed, confidence=confidence, resamples=resamples)
    return beside_no_link(measured, scores, truth, seed, permutations) if permutations else measured


def beside_no_link(
    measured: Sequence[Measurement], scores: ArrayLike, truth: ArrayLike, seed: int, permutations: int
) -> list[Measurement]:
    """Return the measurements, those of the AP with the p of :func:`~fedprint.evaluation.shuffled.permutation_test`.

    ``scores`` (q, m), or (s, q, m) of s trainings; a column of them stands for the user ``truth`` (q,) and no other.
    """
    p = permutation_test(scores, truth, numpy_rng(seed, "permutation"), permutations).p_high
    return [replace(one, p_chance=p) if one.metric == "ap" else one for one in measured]


def measure_outcomes(
    answered: Outcomes, seed: int, *, confidence: float = 0.95, resamples: int = 2000
) -> list[Measurement]:
    """Return the measurements of :func:`measure_reidentification` from its outcomes."""
    rng = numpy_rng(seed, "interval", "ap")
    ap = mean_interval(answered.ap, rng, confidence=confidence, resamples=resamples)
    chance, prevalence = float(answered.chance_ap.mean()), float(answered.prevalence.mean())
    intervals = {
        "ap": (ap, chance),
        "ap_over_chance": (ap.scaled(1 / chance), 1.0),
        "ap_over_prevalence": (ap.scaled(1 / prevalence), chance / prevalence),
    }
    levels = {f"top{k}": float(expected_top_k(k, answered.n_options)) for k in (1, 5)}
    for name, level in {**levels, "tpr_1": 0.01, "tpr_01": 0.001}.items():
        rng = numpy_rng(seed, "interval", name)
        hits = getattr(answered, name)
        hit = hit_interval(hits, answered.user_ids, rng, confidence=confidence, resamples=resamples)
        intervals[name] = (hit, level)
    return [measurement(name, interval, level, answered.user_ids) for name, (interval, level) in intervals.items()]


def ap_by_user(scores: ArrayLike, truth: ArrayLike, options: Sequence[int]) -> list[UserAp]:
    """Return one row per user with a question, in column order; ``options`` (m,) are the columns' user ids."""
    users = outcomes(scores, truth, truth)
    if len(options) != users.n_options:
        raise FedprintError(f"{len(options)} options are named for {users.n_options} columns of scores")
    return [
        UserAp(user_id=int(options[column]), ap=float(ap), n_updates=int(count), chance=float(chance))
        for column, ap, count, chance in zip(users.columns, users.ap, users.counts, users.chance_ap, strict=True)
    ]


def ap_by_round(
    scores: ArrayLike,
    truth: ArrayLike,
    rounds: ArrayLike,
    bins: int,
    seed: int,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> list[RoundBin]:
    """Return the mean AP per bin of training rounds (papers.md 2.5), ranking only the questions of that bin.

    ``rounds`` (q,) is the round of each question; ``bins`` cuts min..max into ranges of about equal length, fewer when
    there are fewer rounds. Users without an update in a bin do not count there, so bins can differ in their users.
    """
    ranked, answers = check_ranking(scores, truth)
    when = np.asarray(rounds, np.int64)
    if when.shape != answers.shape or bins < 1:
        raise FedprintError(f"rounds {when.shape} must have one entry per question {answers.shape}, and bins >= 1")
    spans = [s for s in np.array_split(np.arange(when.min(), when.max() + 1), bins) if len(s)]
    rows = []
    for span in spans:
        inside = (when >= span[0]) & (when <= span[-1])
        rows.append(RoundBin(first=int(span[0]), last=int(span[-1]), ap=None))
        if inside.any():
            answered = outcomes(ranked[inside], answers[inside], answers[inside])
            ap = measure_outcomes(answered, seed, confidence=confidence, resamples=resamples)[0]
            rows[-1] = RoundBin(first=int(span[0]), last=int(span[-1]), ap=ap)
    return rows
