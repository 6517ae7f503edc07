"""A sanity check of the platform: does an attack that cannot know anything score like one that knows nothing?

Why a permutation test and not :func:`~fedprint.evaluation.chance.expected_ap`. A device's updates resemble one another,
so an attack gives them similar scores and they are neighbours in every ranking, with or without a link to their user.
With n positives in one clump at a uniformly random position among N, the precision at the j-th of them is about j / (r
+ j) for a clump after r others, and a clump near the top lifts the AP to almost 1 where scattered positives never do:
for n = 10, N = 1000 the mean is .029 against .016 for independent scores. Correct code would fail a test against the
latter. Permuting the users of the columns keeps the clumps and removes only the link, so the test is exact.

In the open world leave the "unseen" option out: it is not exchangeable with users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import ArrayLike

from fedprint.evaluation.outcomes import check_ranking
from fedprint.ranking import cross_average_precision
from fedprint.types import Doubles

ALPHA = 0.05
"""The rate at which a clean bench may fail."""


@dataclass(frozen=True, kw_only=True)
class PermutationTest:
    """The mean AP (fraction) under the true labels and under permuted ones.

    ``p_high`` and ``p_low`` are one-sided, (1 + #{null at least as extreme}) / (1 + permutations), both uniform or
    conservative when there is no link. ``null_lo`` and ``null_hi`` are the 2.5 % and 97.5 % quantiles.
    """

    value: float
    p_high: float
    p_low: float
    null_mean: float
    null_lo: float
    null_hi: float
    permutations: int
    n_users: int

    @property
    def p_two_sided(self) -> float:
        """Return twice the smaller one-sided p, at most 1."""
        return min(1.0, 2 * min(self.p_high, self.p_low))

    @property
    def smallest_p(self) -> float:
        """Return the least two-sided p this test could have given: few users have few permutations."""
        return min(1.0, 2 * max(1 / (1 + self.permutations), 1 / factorial(min(self.n_users, 20))))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``passed`` unless a check's Bonferroni-adjusted two-sided p is below ALPHA; ``text`` is for the report.

    ``adjusted`` maps each check to its adjusted p. ``failed`` lists the checks that failed, ``powerless`` those that
    could not have failed (too few permutations or users).
    """

    passed: bool
    text: str
    adjusted: Mapping[str, float]
    failed: tuple[str, ...]
    powerless: tuple[str, ...]


def permutation_test(
    scores: ArrayLike, truth: ArrayLike, rng: np.random.Generator, permutations: int = 9999
) -> PermutationTest:
    """Test that the columns of ``scores`` (q, m) are not linked to the users they stand for, ``truth`` (q,).

    ``scores`` (s, q, m) are of one attack trained s times, whose mean AP is tested.
    The statistic is mean_u A[pi(u), u], with A[c, u] the AP of column c for the questions of u and pi a permutation of
    the columns, so thousands of permutations cost one cross table and look-ups.
    """
    trainings = np.asarray(scores, np.float64)
    checked = [check_ranking(one, truth) for one in (trainings if trainings.ndim == 3 else trainings[None])]
    users = np.unique(checked[0][1])
    table = np.mean([cross_average_precision(ranked, answers)[:, users] for ranked, answers in checked], axis=0)
    null = null_means(table, rng, permutations)
    value = float(table[users, np.arange(len(users))].mean())
    slack = 1e-12
    lo, hi = np.quantile(null, [0.025, 0.975])
    return PermutationTest(
        value=value,
        p_high=float((1 + np.sum(null >= value - slack)) / (1 + permutations)),
        p_low=float((1 + np.sum(null <= value + slack)) / (1 + permutations)),
        null_mean=float(null.mean()),
        null_lo=float(lo),
        null_hi=float(hi),
        permutations=permutations,
        n_users=len(users),
    )


def null_means(table: Doubles, rng: np.random.Generator, permutations: int) -> Doubles:
    """Return (permutations,) mean APs with user u read from a random column of ``table`` (m, U), no column twice."""
    columns, users = table.shape
    block = max(1, 4_000_000 // columns)
    parts = []
    for start in range(0, permutations, block):
        rows = min(block, permutations - start)
        drawn = rng.permuted(np.tile(np.arange(columns), (rows, 1)), axis=1)[:, :users]
        parts.append(table[drawn, np.arange(users)].mean(axis=1))
    return np.concatenate(parts)


def judge_jointly(checks: Mapping[str, PermutationTest]) -> Verdict:
    """Judge all checks (attacks x linkages x seeds) at once, Bonferroni: a clean bench fails at most at rate ALPHA.

    Two-sided: an AP far *below* chance is a leak too, since only knowledge of the truth can avoid the right answer (a
    flipped sign, or a fold that left the answer out). Without any check the result is not passed.
    """
    adjusted = {name: min(1.0, len(checks) * test.p_two_sided) for name, test in checks.items()}
    failed = tuple(name for name, p in adjusted.items() if p < ALPHA)
    powerless = tuple(name for name, test in checks.items() if len(checks) * test.smallest_p >= ALPHA)
    return Verdict(
        passed=bool(checks) and not failed,
        text=_sentence(checks, adjusted, failed, powerless),
        adjusted=adjusted,
        failed=failed,
        powerless=powerless,
    )


def _sentence(
    checks: Mapping[str, PermutationTest],
    adjusted: Mapping[str, float],
    failed: tuple[str, ...],
    powerless: tuple[str, ...],
) -> str:
    if not checks:
        return "No sanity check was run, so nothing is known about leaks in the bench."
    worst = min(adjusted, key=lambda name: adjusted[name])
    test = checks[worst]
    fails = f"fails its sanity check: {len(failed)} of {len(checks)} checks ({', '.join(failed)}) differ from chance"
    passes = f"passes its sanity check: none of {len(checks)} checks differs from chance"
    extreme = (
        f" (most extreme: {worst}, mean AP {100 * test.value:.1f} % where no link gives {100 * test.null_lo:.1f} to "
        f"{100 * test.null_hi:.1f} %; adjusted two-sided p = {adjusted[worst]:.3g}, limit {ALPHA:g})."
    )
    weak = f" {len(powerless)} of them had too few permutations or users to be able to fail." if powerless else ""
    return f"The bench {fails if failed else passes}{extreme}{weak}"
