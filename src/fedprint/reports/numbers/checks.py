"""The shuffled-label checks of several seeds as one: of 250 tests of 9,999 permutations none could fail alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from scipy.stats import combine_pvalues

from fedprint.evaluation.shuffled import PermutationTest


@dataclass(frozen=True, kw_only=True)
class PooledTest(PermutationTest):
    """The tests of an attack in several seeds: mean APs, one-sided p combined by Fisher's method.

    Labels are shuffled anew in every seed, so without a link the tests are independent. ``null_lo`` and ``null_hi``
    take the null's spread in each seed as that of a normal distribution. ``least`` is the smallest two-sided p that
    the tests together could have given.
    """

    least: float

    @property
    def smallest_p(self) -> float:
        """Return ``least``."""
        return self.least


def pooled_test(entries: Sequence[Mapping[str, Any]]) -> PermutationTest:
    """Return what the ``checks`` entries of one attack and linkage, one per seed, say together."""
    tests = [_read(entry) for entry in entries]
    if len(tests) == 1:
        return tests[0]
    mean = fmean(test.null_mean for test in tests)
    return PooledTest(
        value=fmean(test.value for test in tests),
        p_high=_fisher([test.p_high for test in tests]),
        p_low=_fisher([test.p_low for test in tests]),
        null_mean=mean,
        null_lo=mean - math.hypot(*(test.null_mean - test.null_lo for test in tests)) / len(tests),
        null_hi=mean + math.hypot(*(test.null_hi - test.null_mean for test in tests)) / len(tests),
        permutations=sum(test.permutations for test in tests),
        n_users=min(test.n_users for test in tests),
        least=min(1.0, 2 * _fisher([test.smallest_p / 2 for test in tests])),
    )


def _fisher(p: Sequence[float]) -> float:
    return float(combine_pvalues(p, method="fisher").pvalue)


def _read(entry: Mapping[str, Any]) -> PermutationTest:
    names = ("value", "p_high", "p_low", "null_mean", "null_lo", "null_hi")
    return PermutationTest(
        **{name: float(entry[name]) for name in names},
        permutations=int(entry["permutations"]),
        n_users=int(entry["n_users"]),
    )
