"""A lower bound on epsilon from guesses about coins, in one run (Steinke, Nasr and Jagielski 2023).

For each of m canaries a fair coin decides whether it takes part. The auditor reads what a mechanism released, guesses
some of the coins and abstains from the others. Under (epsilon, delta)-differential privacy hardly more guesses are
right than if each were right with probability ``e^epsilon / (1 + e^epsilon)``, independently. More right guesses refute
the epsilon. The guesses may depend on everything that was released, but not on the coins; nothing is assumed about how
canaries influence one another. With delta 0 the bound is the log odds of Clopper and Pearson's bound on the accuracy.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from fedprint.types import FedprintError

_STEP = 0.1
_PRECISION = 1e-4


def p_value(epsilon: float, delta: float, *, canaries: int, guesses: int, correct: int) -> float:
    """Return an upper bound on the probability of ``correct`` or more right ``guesses`` under (epsilon, delta)-DP.

    ``P[W >= v] <= beta + 2 m delta max_i P[v > W' >= v - i] / i`` with beta = P[W' >= v] and W' binomial of the guesses
    at ``e^epsilon / (1 + e^epsilon)`` (theorem 5.2). Raises FedprintError for impossible counts.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise FedprintError(
            f"{correct} right of {guesses} guesses on {canaries} canaries: impossible; check the counts"
        )
    accuracy = expit(epsilon)
    beta = float(binom.sf(correct - 1, guesses, accuracy))
    if correct == 0 or delta == 0:
        return beta
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, accuracy))
    alpha = float((below / np.arange(1, correct + 1)).max())
    return min(1.0, beta + 2 * canaries * delta * alpha)


def epsilon_lower_bound(delta: float, confidence: float, *, canaries: int, guesses: int, correct: int) -> float:
    """Return the epsilon up to which every (epsilon, delta)-DP is refuted at ``confidence``; 0 where none is.

    An epsilon counts as refuted only if all smaller ones are. So the bound exceeds the true epsilon with probability at
    most ``1 - confidence``, whatever the shape of the p-value. If all r guesses are right it is about log(r / 3) at 95
    %.
    """

    def refuted(epsilon: float) -> bool:
        return p_value(epsilon, delta, canaries=canaries, guesses=guesses, correct=correct) <= 1 - confidence

    if not refuted(0.0):
        return 0.0
    low = 0.0
    while refuted(low + _STEP):
        low += _STEP
    high = low + _STEP
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
