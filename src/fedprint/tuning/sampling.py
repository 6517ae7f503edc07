"""Which point to try next, and when to stop a trial early."""

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
STARTUP = 4
"""Trials of several parameters before a Gaussian process proposes: the centre and random ones."""


def make_sampler(name: SamplerName, trials: int, seed: int, position: int, startup: int = STARTUP) -> BaseSampler:
    """Return the sampler of the trial at ``position``; auto is a constrained Gaussian process up to 200 trials.

    The process proposes once ``startup`` trials are measured.

    Each trial has a new one, seeded by the study's seed and the position, so that a resumed study continues unchanged.
    """
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import GPSampler, TPESampler

    sampler_seed = seed_for(seed, "sampler", position) % 2**31
    chosen = name if name != "auto" else ("gp" if trials <= LONG else "tpe")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if chosen == "gp":
            return GPSampler(seed=sampler_seed, n_startup_trials=startup)
        return TPESampler(seed=sampler_seed, multivariate=True) if chosen == "tpe" else RandomSampler(seed=sampler_seed)


class Unmeasured(BaseSampler):
    """Draws at random where another sampler suggests values that are measured already or by another worker.

    Points are deterministic, so measuring the same values again is useless. A Gaussian process does not know that:
    where the best value is a bound of the space, it suggests that value half of the time. ``rounded`` maps values that
    count as the same to the same result.
    """

    def __init__(self, sampler: BaseSampler, rounded: Callable[[Values], Values], seed: int) -> None:
        """Keep the sampler whose suggestions are used first."""
        self._sampler = sampler
        self._rounded = rounded
        self._random = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the other sampler's."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return what the other sampler suggests, or random values."""
        suggested = self._sampler.sample_relative(study, trial, search_space)
        known = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
        if self._rounded(suggested) not in [self._rounded(each.params) for each in known if each.params]:
            return suggested
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
        """Forward to the other sampler."""
        self._sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Forward to the other sampler."""
        self._sampler.after_trial(study, trial, state, values)


class FeasiblePruner(BasePruner):
    """Stops a trial whose utility is below the median of the feasible trials at the same step.

    The median of *all* trials would be wrong: weak defences have the best utility but exceed the ceiling, so that
    median would stop exactly the trials that can win. The trial's own AP is not used. ``least`` feasible trials must be
    complete before any trial is stopped.
    """

    def __init__(self, least: int = 5) -> None:
        """Keep the number of feasible trials to wait for."""
        self._least = least

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return whether to stop the trial at its last step."""
        step = trial.last_step
        if step is None:
            return False
        ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        values = [t.intermediate_values.get(step) for t in ended if t.constraints.get(CONSTRAINT, 1.0) <= 0]
        known = [value for value in values if value is not None]
        return len(known) >= self._least and trial.intermediate_values[step] < median(known)
