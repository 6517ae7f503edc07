"""From an attack's ranking and the truth to one outcome per question and one average precision per user.

Letters: q questions, m options (columns), U options that are the answer of at least one question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.chance import expected_ap
from fedprint.ranking import average_precision
from fedprint.types import Doubles, FedprintError, Ints

PER_QUESTION = ("top1", "top5", "tpr_1", "tpr_01")
"""Names of the outcomes of single questions."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The outcomes of one attack before any averaging.

    ``columns`` (U,) are the options that the per-user arrays refer to: ``ap``, ``chance_ap``, ``prevalence`` and
    ``counts`` (its questions) are all (U,). ``top1`` and ``top5`` (q,) are expected hits in [0, 1], ``tpr_1`` and
    ``tpr_01`` (q,) hits of :func:`named_at` at false positive rates of 1 % and .1 %; ``user_ids`` (q,) is the user
    behind each question, the unit that is resampled. All fractions.
    """

    columns: Ints
    ap: Doubles
    chance_ap: Doubles
    prevalence: Doubles
    counts: Ints
    top1: Doubles
    top5: Doubles
    tpr_1: Doubles
    tpr_01: Doubles
    user_ids: Ints
    n_options: int


def outcomes(scores: ArrayLike, truth: ArrayLike, user_ids: ArrayLike) -> Outcomes:
    """Return the outcomes of ``scores`` (q, m) against the true option column ``truth`` (q,).

    ``user_ids`` (q,) are the users that the questions are about. They differ from the option only where several users
    share one (the "unseen" option of the open world).

    Raises:
        FedprintError: shapes disagree, a score is not finite, or a truth is no column.
    """
    ranked, answers = check_ranking(scores, truth)
    users = np.asarray(user_ids, np.int64)
    if users.shape != answers.shape:
        raise FedprintError(f"user_ids has shape {users.shape}, but there are {len(answers)} questions")
    columns, counts = np.unique(answers, return_counts=True)
    tpr_1, tpr_01 = named_at(ranked, answers, (0.01, 0.001))
    return Outcomes(
        columns=columns,
        ap=average_precision(ranked, answers)[columns],
        chance_ap=expected_ap(counts, len(answers)),
        prevalence=counts / len(answers),
        counts=counts.astype(np.int64),
        top1=top_k_credit(ranked, answers, 1),
        top5=top_k_credit(ranked, answers, 5),
        tpr_1=tpr_1,
        tpr_01=tpr_01,
        user_ids=users,
        n_options=ranked.shape[1],
    )


def outcomes_of(whole: Outcomes, columns: ArrayLike) -> Outcomes:
    """Return the part of the outcomes about some ``columns`` (k,), each still ranked among all questions.

    For outcomes whose ``user_ids`` are the right columns. Raises FedprintError when no question is about these columns.
    """
    wanted = np.asarray(columns, np.int64)
    kept, asked = np.isin(whole.columns, wanted), np.isin(whole.user_ids, wanted)
    if not asked.any():
        raise FedprintError(f"no question is about any of {wanted.tolist()}; ask about more users")
    per_user = {name: getattr(whole, name)[kept] for name in ("columns", "ap", "chance_ap", "prevalence", "counts")}
    return replace(whole, **per_user, **{name: getattr(whole, name)[asked] for name in (*PER_QUESTION, "user_ids")})


def check_ranking(scores: ArrayLike, truth: ArrayLike) -> tuple[Doubles, Ints]:
    """Return both as arrays, or raise FedprintError naming what is wrong."""
    ranked, answers = np.asarray(scores, np.float64), np.asarray(truth, np.int64)
    if ranked.ndim != 2 or answers.shape != ranked.shape[:1] or not ranked.size:
        raise FedprintError(f"scores {ranked.shape} must be (q, m) and truth {answers.shape} (q,), neither empty")
    if not np.isfinite(ranked).all():
        raise FedprintError("scores hold NaN or infinity; an attack must score every option with a finite number")
    if answers.min() < 0 or answers.max() >= ranked.shape[1]:
        raise FedprintError(f"truth must name columns 0 to {ranked.shape[1] - 1}")
    return ranked, answers


def top_k_credit(scores: Doubles, truth: Ints, k: int) -> Doubles:
    """Return (q,): the chance that the true option is among the k best when ties are broken at random.

    Expected credit rather than a draw: constant scores give exactly k/m, and the result needs no seed.
    """
    right = scores[np.arange(len(truth)), truth][:, None]
    better, tied = (scores > right).sum(1), (scores == right).sum(1)
    credit: Doubles = np.clip((k - better) / tied, 0.0, 1.0)
    return credit


def named_at(scores: Doubles, truth: Ints, rates: Sequence[float]) -> Doubles:
    """Return hits (rates, q): whether the right user's score is above what all but ``rate`` of the wrong users have.

    An adversary who names only users above one threshold, for all questions the same, names the right one this often
    (the true positive rate), where it names a wrong one for a share ``rate`` of the pairs of question and wrong user.
    """
    right = scores[np.arange(len(truth)), truth]
    wrong = scores[np.arange(scores.shape[1]) != truth[:, None]]
    if not len(wrong):
        return np.ones((len(rates), len(truth)))
    places = [len(wrong) - 1 - int(rate * len(wrong)) for rate in rates]
    hits: Doubles = (right > np.partition(wrong, places)[places][:, None]).astype(np.float64)
    return hits
