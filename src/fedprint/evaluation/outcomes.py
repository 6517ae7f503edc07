"""From an attack's ranking and the truth to one outcome per question and one average precision per user.

Letters: q questions, m options (columns), U options that are the answer of at least one question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from fedprint.evaluation.chance import FloatArray, expected_ap
from fedprint.types import FedprintError

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """How one attack did, before any averaging.

    ``columns`` (U,) names the option each per-user array speaks of: ``ap``, ``chance_ap``, ``prevalence`` and
    ``counts`` (its questions) are all (U,). ``top1`` and ``top5`` (q,) are expected hits in [0, 1]; ``user_ids`` (q,)
    is the user behind each question, the unit that is resampled. All fractions.
    """

    columns: IntArray
    ap: FloatArray
    chance_ap: FloatArray
    prevalence: FloatArray
    counts: IntArray
    top1: FloatArray
    top5: FloatArray
    user_ids: IntArray
    n_options: int


def outcomes(scores: ArrayLike, truth: ArrayLike, user_ids: ArrayLike) -> Outcomes:
    """Return the outcomes of ``scores`` (q, m) against the true option column ``truth`` (q,).

    ``user_ids`` (q,) is who each question is about; it differs from the option only where several users share one
    (the "unseen" option of the open world).

    Raises:
        FedprintError: shapes disagree, a score is not finite, or a truth is no column.
    """
    ranked, answers = check_ranking(scores, truth)
    users = np.asarray(user_ids, np.int64)
    if users.shape != answers.shape:
        raise FedprintError(f"user_ids has shape {users.shape}, but there are {len(answers)} questions")
    columns, counts = np.unique(answers, return_counts=True)
    return Outcomes(
        columns=columns,
        ap=average_precision(ranked, answers)[columns],
        chance_ap=expected_ap(counts, len(answers)),
        prevalence=counts / len(answers),
        counts=counts.astype(np.int64),
        top1=top_k_credit(ranked, answers, 1),
        top5=top_k_credit(ranked, answers, 5),
        user_ids=users,
        n_options=ranked.shape[1],
    )


def outcomes_of(found: Outcomes, columns: ArrayLike) -> Outcomes:
    """Return the part of ``found`` about some of its ``columns`` (k,), each still ranked among all questions.

    For outcomes whose ``user_ids`` are the right columns. Raises FedprintError when nobody of them is asked about.
    """
    wanted = np.asarray(columns, np.int64)
    kept, asked = np.isin(found.columns, wanted), np.isin(found.user_ids, wanted)
    if not asked.any():
        raise FedprintError(f"no question is about any of {wanted.tolist()}; ask about more users")
    per_user = {name: getattr(found, name)[kept] for name in ("columns", "ap", "chance_ap", "prevalence", "counts")}
    return replace(found, **per_user, **{name: getattr(found, name)[asked] for name in ("top1", "top5", "user_ids")})


def check_ranking(scores: ArrayLike, truth: ArrayLike) -> tuple[FloatArray, IntArray]:
    """Return both as arrays, or raise FedprintError naming what is wrong."""
    ranked, answers = np.asarray(scores, np.float64), np.asarray(truth, np.int64)
    if ranked.ndim != 2 or answers.shape != ranked.shape[:1] or not ranked.size:
        raise FedprintError(f"scores {ranked.shape} must be (q, m) and truth {answers.shape} (q,), neither empty")
    if not np.isfinite(ranked).all():
        raise FedprintError("scores hold NaN or infinity; an attack must score every option with a finite number")
    if answers.min() < 0 or answers.max() >= ranked.shape[1]:
        raise FedprintError(f"truth must name columns 0 to {ranked.shape[1] - 1}")
    return ranked, answers


def average_precision(scores: FloatArray, truth: IntArray) -> FloatArray:
    """Return the AP of every option (m,): its column over all q questions, positives where it is the truth.

    scikit-learn's ``average_precision_score``, ties included: tied questions share the last rank of their tie. NaN for
    an option that is never the answer. O(m q log q), without a loop.
    """
    at_least = questions_at_least(scores)[np.arange(len(truth)), truth]
    precision = positives_at_least(at_least[:, None], truth)[:, 0] / at_least
    counts = np.bincount(truth, minlength=scores.shape[1])
    sums = np.bincount(truth, weights=precision, minlength=scores.shape[1])
    ap: FloatArray = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return ap


def cross_average_precision(scores: FloatArray, truth: IntArray) -> FloatArray:
    """Return A (m, m): A[c, u] = AP of column c when the positives are the questions whose truth is u.

    The diagonal is :func:`average_precision`; NaN columns for users without questions.
    """
    at_least = questions_at_least(scores)
    precision = positives_at_least(at_least, truth) / at_least
    member = np.arange(scores.shape[1])[:, None] == truth[None, :]
    counts = member.sum(1).astype(float)
    counts[counts == 0] = np.nan
    result: FloatArray = (member.astype(float) @ precision / counts[:, None]).T
    return result


def questions_at_least(scores: FloatArray) -> IntArray:
    """Return (q, m): how many questions score at least as high as this one in its column."""
    ranks: IntArray = rankdata(-scores, method="max", axis=0).astype(np.int64)
    return ranks


def positives_at_least(at_least: IntArray, truth: IntArray) -> IntArray:
    """Return (q, c): the same count among the questions with the same truth, from the ranks ``at_least`` (q, c)."""
    keys = truth[:, None] * (len(truth) + 1) + at_least
    before = np.searchsorted(np.sort(truth), truth, side="left")
    ranks: IntArray = rankdata(keys, method="max", axis=0).astype(np.int64) - before[:, None]
    return ranks


def top_k_credit(scores: FloatArray, truth: IntArray, k: int) -> FloatArray:
    """Return (q,): the chance that the true option is among the k best when ties are broken at random.

    Expected credit rather than a draw: constant scores give exactly k/m, and the result needs no seed.
    """
    own = scores[np.arange(len(truth)), truth][:, None]
    better, tied = (scores > own).sum(1), (scores == own).sum(1)
    credit: FloatArray = np.clip((k - better) / tied, 0.0, 1.0)
    return credit
