"""Recognition by the number of users: among random parts of those there are, and a prediction for larger crowds.

Letters: q questions, m users (columns), n users of a crowd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprint.evaluation.intervals import Interval, hit_interval, mean_interval
from fedprint.evaluation.outcomes import outcomes
from fedprint.types import Doubles, Ints

TAIL = 0.01
"""The share of the wrong scores that the tail is fitted to."""
_LEAST_TAIL, _MOST_TAIL = 50, 20_000
"""Bounds on how many scores that is: fewer say nothing of its form, and more are its body."""
_RESAMPLES = 200
"""Of users, each with a fit of its own."""
_EXACT = 50
"""The ranks at which the chance in the number of better questions matters."""
_RATES = np.concatenate([[0.0], np.logspace(-6, 7, 600)])
"""Expected numbers of better questions at which precision is tabulated."""
_BELOW_ONE = np.concatenate([[0.0], np.logspace(-9, 0, 400)])
"""What the nodes of an integral from 0 to 1 lie below 1, where it is steep."""


def among_parts(
    scores: Doubles, truth: Ints, n: int, rng: np.random.Generator, *, draws: int, confidence: float
) -> Mapping[str, Interval]:
    """Return ``ap``, ``tpr_1`` and ``tpr_01`` among ``n`` of the users, meaned over random crowds of that size.

    ``scores`` (q, m), ``truth`` (q,). The users are dealt into crowds ``draws`` times, and a crowd's questions are
    those of its users. The adversary is the one that learnt from all users. Intervals are over users.
    """
    users = np.unique(truth)
    ap: dict[int, list[float]] = {}
    hits: dict[str, list[Doubles]] = {"tpr_1": [], "tpr_01": []}
    owners: list[Ints] = []
    for _ in range(1 if n == len(users) else draws):
        dealt = rng.permutation(users)
        for crowd in (np.sort(dealt[i : i + n]) for i in range(0, len(users) - n + 1, n)):
            asked = np.isin(truth, crowd)
            answers = np.searchsorted(crowd, truth[asked])
            answered = outcomes(scores[np.ix_(asked, crowd)], answers, truth[asked])
            for column, value in zip(answered.columns, answered.ap, strict=True):
                ap.setdefault(int(crowd[column]), []).append(float(value))
            owners.append(answered.user_ids)
            for name, parts in hits.items():
                parts.append(getattr(answered, name))
    found = {"ap": mean_interval([np.mean(values) for values in ap.values()], rng, confidence=confidence)}
    of_user = np.concatenate(owners)
    for name, parts in hits.items():
        found[name] = hit_interval(np.concatenate(parts), of_user, rng, confidence=confidence)
    return found


def predicted_ap(
    scores: Doubles, truth: Ints, sizes: Sequence[int], rng: np.random.Generator, *, confidence: float
) -> dict[int, Interval]:
    """Return by number of users what mean AP to expect, from ``scores`` (q, m) of fewer users.

    A user's scores are measured in standard deviations from the mean of the wrong ones in the same column. The rate f
    at which wrong scores exceed a level comes from all columns together: counted, and above the highest hundredth from
    a generalised Pareto distribution by probability-weighted moments (Hosking and Wallis 1987). Where N wrong questions
    stand beside a user's own, the i-th best of these has K wrong ones above it, and precision i / (i + K). They come in
    clumps, because questions about one user err together: K, of mean N f, is a sum of Poisson many clumps of the sizes
    in the highest tenth of the tail. The interval is of a bootstrap over users, each resample with a tail of its own.
    """
    columns, tail = np.unique(truth), _tail_of(scores, truth)
    level, rank, owner = _positives(scores, truth, columns)
    wrong = [(n - 1) * len(truth) / len(columns) for n in sizes]
    drawn = rng.multinomial(len(columns), np.full(len(columns), 1 / len(columns)), _RESAMPLES)
    weights = np.vstack([np.ones(len(columns)), drawn])
    expected = np.empty((len(weights), len(sizes)))
    counts = np.bincount(owner, minlength=len(columns))
    few = [_few(i, tail.clumps) for i in range(1, min(int(rank.max()), _EXACT) + 1)]
    for row, weight in enumerate(weights):
        above = tail.rates(level, weight)
        for column, many in enumerate(wrong):
            precision = _precision(rank, many * above, few)
            of_users = np.bincount(owner, precision, len(columns)) / counts
            expected[row, column] = (of_users * weight).sum() / weight.sum()
    half = (1 - confidence) / 2
    ends = np.quantile(expected[1:], [half, 1 - half], axis=0)
    return {
        n: Interval(value=value, lo=min(lo, value), hi=max(hi, value))
        for n, value, lo, hi in zip(sizes, expected[0].tolist(), *ends.tolist(), strict=True)
    }


@dataclass(frozen=True, kw_only=True)
class _Tail:
    """Wrong scores: how often a level is exceeded, among users with given weights.

    ``body`` are sorted levels of all columns, thinned, below ``start``; ``excess`` (t,) are what levels in the tail
    have above ``start``, in rising order, and ``owner`` (t,) whose columns they are in; ``sizes`` (U,) how many wrong
    scores each column has; ``clumps`` how many of the highest each user has in a column, where there are any.
    """

    body: Doubles
    start: float
    excess: Doubles
    owner: Ints
    sizes: Doubles
    clumps: Ints

    def rates(self, level: Doubles, weight: Doubles) -> Doubles:
        """Return the share of the wrong scores above each level."""
        w = weight[self.owner]
        share = w.sum() / (self.sizes * weight).sum()
        xi, sigma = _pareto(self.excess, w)
        over = np.maximum(level - self.start, 0.0) / sigma
        tail = np.exp(-over) if abs(xi) < 1e-6 else np.maximum(1 + xi * over, 0.0) ** (-1 / xi)
        below = 1 - np.searchsorted(self.body, level, side="left") / max(len(self.body), 1)
        rates: Doubles = np.where(level > self.start, share * tail, share + (1 - share) * below)
        return rates


def _pareto(excess: Doubles, weight: Doubles) -> tuple[float, float]:
    """Return shape and scale of a generalised Pareto distribution from sorted, weighted values (t,)."""
    total = weight.sum()
    exceeded = 1 - (np.cumsum(weight) - weight / 2) / total
    mean, moment = (weight * excess).sum() / total, (weight * exceeded * excess).sum() / total
    gap = max(mean - 2 * moment, 1e-12)
    return 2 - mean / gap, max(2 * mean * moment / gap, 1e-12)


def _levels(scores: Doubles, truth: Ints, column: int) -> tuple[Doubles, Doubles]:
    """Return a column's wrong and right scores in standard deviations from the mean of the wrong ones."""
    mine = truth == column
    wrong, right = scores[~mine, column], scores[mine, column]
    mean, spread = wrong.mean(), wrong.std() or 1.0
    return (wrong - mean) / spread, (right - mean) / spread


def _tail_of(scores: Doubles, truth: Ints) -> _Tail:
    columns = np.unique(truth)
    wrong = [_levels(scores, truth, column)[0] for column in columns]
    sizes = np.array([len(part) for part in wrong], float)
    joined = np.concatenate(wrong)
    owner = np.repeat(np.arange(len(columns)), sizes.astype(int))
    kept = min(max(int(TAIL * len(joined)), _LEAST_TAIL), _MOST_TAIL, len(joined) - 1)
    order = np.argpartition(joined, len(joined) - kept - 1)
    start, top = float(joined[order[-kept - 1]]), order[-kept:]
    top = top[np.argsort(joined[top], kind="stable")]
    body = np.sort(joined[order[: len(joined) - kept]])
    asked, highest = np.concatenate([truth[truth != column] for column in columns]), top[-max(kept // 10, 1) :]
    clumps = np.unique(np.stack([owner[highest], asked[highest]]), axis=1, return_counts=True)[1]
    return _Tail(
        body=body,
        start=start,
        excess=joined[top] - start,
        owner=owner[top],
        sizes=sizes,
        clumps=clumps.astype(np.int64),
    )


def _positives(scores: Doubles, truth: Ints, columns: Ints) -> tuple[Doubles, Ints, Ints]:
    """Return each question's level in its own user's column, its rank among this user's questions, and the user."""
    level, rank, owner = [], [], []
    for position, column in enumerate(columns):
        own = np.sort(_levels(scores, truth, column)[1])[::-1]
        level.append(own)
        rank.append(np.arange(1, len(own) + 1))
        owner.append(np.full(len(own), position))
    return np.concatenate(level), np.concatenate(rank), np.concatenate(owner)


def _few(rank: int, clumps: Ints) -> Doubles:
    """Return E[i / (i + K)] of the i-th best question at each of the rates of K, which come in clumps of these sizes.

    It is the integral of E[T^K] over T^i from 0 to 1, and E[T^K] of a sum of Poisson many clumps of size S is
    exp(rate / E[S] (E[T^S] - 1)).
    """
    size, count = np.unique(clumps, return_counts=True)
    share = count / count.sum()
    of_size = (share[:, None] * (1 - _BELOW_ONE) ** (size[:, None] / rank)).sum(0)
    expected: Doubles = np.trapezoid(np.exp(np.outer(_RATES / (share @ size), of_size - 1)), _BELOW_ONE, axis=1)
    return expected


def _precision(rank: Ints, rate: Doubles, few: Sequence[Doubles]) -> Doubles:
    """Return the expected precision (q,) at questions of these ranks that expect ``rate`` (q,) wrong ones above."""
    expected: Doubles = rank / (rank + rate)  # the limit of many
    for i, table in enumerate(few, 1):
        at = rank == i
        expected[at] = np.interp(rate[at], _RATES, table)
    return expected
