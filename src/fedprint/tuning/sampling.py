"""Which point to try next, and when to leave a trial early."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from fedprint.rng import seed_for
from fedprint.tuning.score import CONSTRAINT
from fedprint.tuning.space import Values

if TYPE_CHECKING:
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
    from optuna.samplers import GPSampler, TPESampler

    own = seed_for(seed, "sampler", position) % 2**31
    chosen = name if name != "auto" else ("gp" if trials <= LONG else "tpe")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if chosen == "gp":
            return GPSampler(seed=own, n_startup_trials=STARTUP)
        return TPESampler(seed=own, multivariate=True) if chosen == "tpe" else RandomSampler(seed=own)


class Unmeasured(BaseSampler):
    """Draws at random where another sampler asks for values that are known, or that another worker measures.

    Points are deterministic, so the same values again tell nothing. A Gaussian process does not know that, and where
    the best value is a bound of the space it asks for it half of the time. ``rounded`` says which values are the same.
    """

    def __init__(self, sampler: BaseSampler, rounded: Callable[[Values], Values], seed: int) -> None:
        """Keep the sampler that is asked first."""
        self._sampler = sampler
        self._rounded = rounded
        self._random = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the other sampler's."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return what the other sampler asks for, or random values."""
        asked = self._sampler.sample_relative(study, trial, search_space)
        known = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
        if self._rounded(asked) not in [self._rounded(each.params) for each in known if each.params]:
            return asked
        return {
            name: self._random.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the other sampler's."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the other sampler."""
        self._sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Tell the other sampler."""
        self._sampler.after_trial(study, trial, state, values)


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
