"""Which point to try next, and when to leave a trial early."""

from __future__ import annotations

import warnings
from statistics import median
from typing import TYPE_CHECKING, Literal

from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from fedprint.rng import seed_for
from fedprint.tuning.score import CONSTRAINT

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study

SamplerName = Literal["auto", "gp", "tpe", "random"]
LONG = 200
"""Trials beyond which a Gaussian process is slow and a tree-structured Parzen estimator takes over."""
STARTUP = 8


def make_sampler(name: SamplerName, trials: int, seed: int, position: int) -> BaseSampler:
    """Return the sampler of the trial at ``position``; auto is a constrained Gaussian process up to 200 trials.

    A fresh one for each trial, seeded by the study's seed and the position: a resumed study goes on as it would have.
    """
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import GPSampler, RandomSampler, TPESampler

    own = seed_for(seed, "sampler", position) % 2**31
    chosen = name if name != "auto" else ("gp" if trials <= LONG else "tpe")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if chosen == "gp":
            return GPSampler(seed=own, n_startup_trials=STARTUP)
        return TPESampler(seed=own, multivariate=True) if chosen == "tpe" else RandomSampler(seed=own)


class FeasiblePruner(BasePruner):
    """Leaves a trial whose utility is below the median of the feasible trials' at the same step.

    The median of *all* trials would be wrong here: weak defences have the best utility and break the ceiling, so it
    would leave just those trials that can win. The trial's own attack plays no part. ``least`` feasible trials must be
    complete before any is left.
    """

    def __init__(self, least: int = 5) -> None:
        """Keep the number of feasible trials to wait for."""
        self._least = least

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return whether to leave the trial at its last step."""
        step = trial.last_step
        if step is None:
            return False
        ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        values = [t.intermediate_values.get(step) for t in ended if t.constraints.get(CONSTRAINT, 1.0) <= 0]
        known = [value for value in values if value is not None]
        return len(known) >= self._least and trial.intermediate_values[step] < median(known)
