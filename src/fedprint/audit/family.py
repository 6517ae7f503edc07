"""Tighter bounds on epsilon, within a family: the claimed rounds, with more or less noise than claimed.

The bound of bound.py holds for any mechanism, and so knows nothing but epsilon and delta. A hypothesis with a whole
trade-off curve refutes more with the same guesses. Here it is "the noise is ``scale`` times the claimed one". The least
scale that the guesses refute gives the bound: the epsilon that the claimed rounds would have with that noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.stats import t as student_t

from fedprint.accounting.accountants import load_dp_accounting, privacy_losses
from fedprint.accounting.events import SampledGaussian
from fedprint.types import Doubles

_EPSILONS = np.concatenate([np.linspace(0.0, 12.0, 481), np.linspace(12.25, 40.0, 112)])
"""Where a trade-off curve is known. Between them it is taken for its tangents, which lie below it."""
_SCALES, _PRECISION = (1 / 8, 16.0), 5e-3
"""Scales between which the bound is sought, and the relative precision of its noise."""
_STEP = 1e-3
"""To multiples of which a round's privacy losses are rounded up: 54 rounds have epsilon 7.98888 instead of 7.98886."""

Rounds = Mapping[SampledGaussian, int]
"""Each mechanism of the rounds, and how often it runs."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The trade-off of the rounds at one scale: ``deltas`` at :data:`_EPSILONS`, and ``epsilon`` at the delta asked."""

    deltas: Doubles
    epsilon: float

    @property
    def best_accuracy(self) -> float:
        """Return how often a guess about one fair coin is right at most: (1 + total variation) / 2."""
        return float(1 + self.deltas[0]) / 2

    def inverse(self, share: float) -> float:
        """Return f(1 - share): the least false positive rate at which ``share`` of those included can be found."""
        fewer, less = 1 - self.deltas, 1 - share
        return max(0.0, float((fewer - _UP * less).max()), float((_DOWN * (fewer - less)).max()))


_UP, _DOWN = np.exp(_EPSILONS), np.exp(-_EPSILONS)


def of_one_run(
    claimed: Rounds, delta: float, confidence: float, *, canaries: int, guesses: int, correct: int
) -> float | None:
    """Return the bound from ``correct`` of ``guesses`` in one run; None where no accountant knows the curve.

    (Mahloujifar, Melis and Chaudhuri 2024, arXiv:2410.22235, algorithm 3.) Nothing is assumed about how canaries
    influence one another. It also holds for the canaries of several runs together.
    """

    def refuted(curve: Curve) -> bool:
        share = (1 - confidence) * guesses / canaries
        wrong, right = share * (guesses - correct) / guesses, share * correct / guesses
        for i in range(correct - 1, -1, -1):
            least = max(wrong, curve.inverse(right))
            right += i / (guesses - i) * (least - wrong)
            wrong = least
            if right + wrong > guesses / canaries:
                return True
        return False

    return _least_refuted(claimed, delta, refuted) if guesses else 0.0


def of_several_runs(claimed: Rounds, delta: float, confidence: float, accuracies: Sequence[float]) -> float | None:
    """Return the bound from the shares (R,) of right guesses in R runs, each about all canaries; None as above.

    A guess about one fair coin is right with probability (1 + total variation) / 2 at most, however canaries influence
    one another, and so is the mean of a run's guesses. The lower end of Student's t interval over the runs, which are
    independent, refutes less.
    """
    values = np.asarray(accuracies, float)
    if len(values) < 2:
        return 0.0
    error = values.std(ddof=1) / np.sqrt(len(values))
    least = float(values.mean() - student_t.ppf(confidence, len(values) - 1) * error)
    return _least_refuted(claimed, delta, lambda curve: curve.best_accuracy < least)


def _least_refuted(claimed: Rounds, delta: float, refuted: Callable[[Curve], bool]) -> float | None:
    """Return the epsilon at the least noise that is refuted: 0 if none is, None where the curve is not known."""
    if any(event.sampling != "poisson" for event in claimed) or load_dp_accounting() is None:
        return None
    low, high = np.log(_SCALES)
    frozen = tuple(claimed.items())
    if not refuted(_curve(frozen, delta, float(np.exp(high)))):
        return 0.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if refuted(_curve(frozen, delta, float(np.exp(middle)))) else (middle, high)
    return _curve(frozen, delta, float(np.exp(high))).epsilon


@cache
def _curve(claimed: tuple[tuple[SampledGaussian, int], ...], delta: float, scale: float) -> Curve:
    scaled = {replace(event, sigma=event.sigma * scale): times for event, times in claimed}
    losses = privacy_losses(scaled, _STEP)
    return Curve(
        deltas=np.asarray(losses.get_delta_for_epsilon(_EPSILONS), float),
        epsilon=float(losses.get_epsilon_for_delta(delta)),
    )
