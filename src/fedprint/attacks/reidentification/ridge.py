"""Ridge regression on one-hot users, over kernels that validation chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedprint.attacks.dense import positive_solution, refined_solution, symmetrise
from fedprint.attacks.features import TRANSFORMS, Block, Transform, Updates, layer_groups
from fedprint.attacks.problem import Criterion, Problem, Validation, of_some_users
from fedprint.attacks.reidentification.large import known_kernel, scores_by_parameters
from fedprint.attacks.reidentification.reidentify import best_temperature
from fedprint.attacks.reidentification.workspace import Settings, Workspace
from fedprint.component import Component
from fedprint.lab.workers.allocator import return_freed_memory
from fedprint.params import select
from fedprint.ranking import average_precision
from fedprint.types import Doubles, Floats, Ints, Scores

CHOOSERS = 256
"""On how many users ridge chooses its layers, transforms and penalty, at most."""

MANY = 2048
"""Number of known updates from which on ridge scores by weights on the parameters."""

PENALTIES = (0.03, 0.1, 0.3, 1.0)


class Ridge(Component):
    """``ridge``: ridge regression on one-hot users, over layers and transforms chosen on the prior.

    With more than :data:`MANY` known updates it computes no kernel between these and the asked ones.
    """

    symmetric: ClassVar[bool] = True
    selectable: ClassVar[bool] = True
    name: Literal["ridge"] = "ridge"
    layers: tuple[str, ...] | None = None
    transforms: tuple[Transform, ...] = Field(default=TRANSFORMS, min_length=1)
    most_blocks: int = Field(default=3, ge=1)

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """Choose up to ``most_blocks`` pairs (layer, transform) and the penalty."""
        candidates = candidate_blocks(validations[0].problem.updates, self.layers, self.transforms)
        blocks, penalty = choose_kernel(validations, work, candidates, most=self.most_blocks)
        return {"blocks": blocks, "penalty": penalty}

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Regression outputs."""
        if len(problem.fit) > MANY and problem.denoise is None and problem.part_of is None:
            blocks, penalty = tuple(settings["blocks"]), settings["penalty"]
            return work.answered(problem, (blocks, penalty), lambda: _of_many(problem, blocks, penalty, work.device))
        return ridge_scores(combined(problem, settings["blocks"], work), problem, settings["penalty"])


def _of_many(problem: Problem, blocks: Sequence[Block], penalty: float, device: str) -> Scores:
    inner, centrings = known_kernel(problem, blocks, device)
    return_freed_memory()  # each of the three parts needs as much as the next one
    if device == "cpu":
        symmetrise(inner)  # rounding is not
        dual = refined_solution(inner, penalty, targets_of(problem))
    else:
        dual = dual_of(symmetric(inner), problem, penalty, device)
    del inner  # it is as large as all that follows
    return_freed_memory()
    return scores_by_parameters(problem, blocks, centrings, dual, device)


class RidgeOfMeans(Ridge):
    """``ridge-means``: ridge that scores the mean of linked updates, whatever shadow validation prefers.

    It is there to be compared with ``ridge``, and is never selected.
    """

    selectable: ClassVar[bool] = False
    name: Literal["ridge-means"] = "ridge-means"  # type: ignore[assignment]


def combined(problem: Problem, blocks: Sequence[Block], work: Workspace) -> Floats:
    """Return the mean kernel (n, p) of the blocks."""
    first, *others = (work.kernel(problem, block) for block in blocks)
    if not others:
        return first
    mean = first.copy()
    for part in others:
        mean += part
    mean /= len(blocks)
    return mean


def ridge_scores(kernel: NDArray[np.floating], problem: Problem, penalty: float) -> Scores:
    """Return ridge's outputs (q, m) for a kernel (n, p)."""
    weights = dual_of(symmetric(kernel[problem.fit]), problem, penalty)
    out: Scores = (kernel[problem.ask] @ weights.astype(kernel.dtype)).astype(np.float64)
    return out


def dual_of(system: Doubles, problem: Problem, penalty: float, device: str = "cpu") -> Doubles:
    """Solve ``(K + penalty I) a = Y - mean(Y)`` for the fit rows' kernel K (p, p), which it overwrites: (p, m)."""
    system[np.diag_indices_from(system)] += penalty
    return positive_solution(system, targets_of(problem), device)


def targets_of(problem: Problem) -> Doubles:
    """Return one-hot labels (p, m) less their mean."""
    targets: Doubles = np.eye(problem.options)[problem.labels]
    targets -= targets.mean(0)
    return targets


def symmetric(inner: NDArray[np.floating]) -> Doubles:
    """Return the mean of a matrix (p, p) and its transpose in float64, because rounding to float32 is not symmetric."""
    out = inner.astype(np.float64)
    out += inner.T  # of the given type: no second float64 copy
    out *= 0.5
    return out


def choose_kernel(
    validations: Sequence[Validation], work: Workspace, candidates: Sequence[Block], most: int
) -> tuple[tuple[Block, ...], float]:
    """Choose blocks by forward selection, and the ridge penalty, by the criterion of the validation problems.

    Of many users :data:`CHOOSERS` decide: a trial's cost grows with the cube of their number. The AP is that of
    uncalibrated scores: to calibrate each trial would cost more than the trial.
    """
    validations = [of_some_users(v, CHOOSERS) for v in validations]
    problems, answers = [v.problem for v in validations], [v.answers for v in validations]
    cost, penalties = CRITERIA[validations[0].by]

    def least(blocks: tuple[Block, ...]) -> tuple[float, float]:
        ready = [(combined(problem, blocks, work), problem) for problem in problems]
        return min((cost([ridge_scores(*each, penalty) for each in ready], answers), penalty) for penalty in penalties)

    for problem in problems:
        work.prepare(problem, candidates)
    chosen: tuple[Block, ...] = ()
    best, penalty = np.inf, penalties[0]
    while len(chosen) < min(most, len(candidates)):
        trials = ((*least((*chosen, block)), i) for i, block in enumerate(candidates) if block not in chosen)
        loss, new_penalty, i = min(trials)
        if chosen and loss >= best - 0.01 * abs(best):
            break
        best, penalty, chosen = loss, new_penalty, (*chosen, candidates[i])
    return chosen, penalty


def _log_loss(scored: Sequence[Scores], answers: Sequence[Ints]) -> float:
    return best_temperature(np.concatenate(scored), np.concatenate(answers))[0]


def _minus_ap(scored: Sequence[Scores], answers: Sequence[Ints]) -> float:
    aps = [np.nanmean(average_precision(scores, known)) for scores, known in zip(scored, answers, strict=True)]
    return -float(np.mean(aps))


CRITERIA: Mapping[Criterion, tuple[Callable[..., float], tuple[float, ...]]] = {
    "log-loss": (_log_loss, PENALTIES),
    "ap": (_minus_ap, (*PENALTIES, 3.0, 10.0, 30.0)),
}
"""The cost to minimise, and the penalties to try: with more noise the best penalty is larger."""


def candidate_blocks(updates: Updates, layers: tuple[str, ...] | None, transforms: Sequence[Transform]) -> list[Block]:
    """Return every layer alone and all together, under every transform."""
    wanted = set(select(updates.layers, layers))
    groups = [tuple(name for name in group if name in wanted) for group in layer_groups(updates)]
    groups = [group for group in groups if group]
    choices = [(group,) for group in groups] + ([tuple(groups)] if len(groups) > 1 else [])
    return [(choice, transform) for choice in choices for transform in transforms]
