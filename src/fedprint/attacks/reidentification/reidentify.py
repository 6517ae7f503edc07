"""Re-identification: which user sent this update (gradient-leaks, section 4.1; papers.md 2.3).

Every entry of ``attacks:`` is a component with two methods: ``settings`` chooses its settings on validation problems,
and ``scores`` fits what a problem learns from (recorded prior updates or shadow devices) and scores its options with
these settings. :func:`answer` calibrates the scores and ranks the options.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import log_softmax

from fedprint.attacks.denoise import Denoise, denoised
from fedprint.attacks.features import (
    ROW_WISE,
    TRANSFORMS,
    Block,
    Products,
    Transform,
    Updates,
    kernel,
    layer_groups,
    num_rows,
    products,
    row_norms,
)
from fedprint.attacks.problem import Criterion, Problem, Validation, of_some_users
from fedprint.attacks.reidentification.large import known_kernel, scores_by_parameters
from fedprint.component import Component
from fedprint.params import select
from fedprint.ranking import average_precision
from fedprint.types import Doubles, Floats, Ints, Ranking, Scores

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

    from fedprint.models.curves import Curves

Settings = Mapping[str, Any]
TIE = 1e-5
"""Size of the random tie-break in nats: far above float64 rounding of a log-probability, below any real difference."""

TEMPERATURES = (1.0, 3.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0)
"""Outputs of a ridge shrink as its penalty grows."""


class Workspace:
    """Label-free kernels, computed once and shared by attacks, settings and the shuffled-label check.

    Settings are chosen once too, because adversaries tune the same attack on the same problems.
    """

    def __init__(self) -> None:
        self._products: dict[tuple[_Rows, tuple[str, ...], Transform], Products] = {}
        self._grams: dict[tuple[int, tuple[str, ...], Transform], Products] = {}
        self._kernels: dict[tuple[_Rows, Block], Floats] = {}
        self._denoised: dict[tuple[_Rows, Block, Denoise], Floats] = {}
        self._norms: dict[tuple[int, tuple[str, ...]], torch.Tensor] = {}
        self._settings: dict[object, Settings] = {}
        self._alive: list[Updates] = []  # an id stays unique while its object lives
        self._curves: Curves | None = None

    @contextmanager
    def reporting(self, curves: Curves | None) -> Iterator[None]:
        """Send the losses of the fits inside the block, whose answer is reported, to ``curves``."""
        self._curves = curves
        try:
            yield
        finally:
            self._curves = None

    def logger(self) -> Logger | None:
        """Return the logger of the next fit's losses, or None: most fits only choose or check something."""
        return None if self._curves is None else self._curves.logger()

    def kernel(self, problem: Problem, block: Block) -> Floats:
        """Return the kernel (n, p) of one block; several layers are the sum of their products.

        Rows that are neither fitted nor asked may be NaN.
        """
        if problem.part_of is not None:
            return self.kernel(problem.part_of.whole, block)[:, problem.part_of.columns]
        if problem.denoise is None:
            return self._kernel(problem, block)
        key = (_rows(problem), block, problem.denoise)
        if key not in self._denoised:
            wide = self._kernel(_with_nuisance(problem), block)
            self._denoised[key] = denoised(wide, problem.fit, problem.nuisance, problem.denoise)
        return self._denoised[key]

    def _kernel(self, problem: Problem, block: Block) -> Floats:
        key = (_rows(problem), block)
        if key not in self._kernels:
            self._alive.append(problem.updates)
            layers, transform = block
            parts = (self._of_layer(problem, group, transform) for group in layers)
            self._kernels[key] = kernel(functools.reduce(operator.add, parts), problem.fit)
        return self._kernels[key]

    def settings(self, attack: Attack, validations: Sequence[Validation]) -> Settings:
        """Return the settings that an attack chooses on validation problems."""
        parts = []
        for v in validations:
            p = v.problem
            arrays = (p.fit, p.labels, p.ask, p.nuisance, v.answers)
            parts.append((id(p.updates), p.options, p.denoise, v.by, *(array.tobytes() for array in arrays)))
        key = (attack, *parts)
        if key not in self._settings:
            self._alive.extend(v.problem.updates for v in validations)
            self._settings[key] = attack.settings(validations, self)
        return self._settings[key]

    def prepare(self, problem: Problem, blocks: Sequence[Block]) -> None:
        """Compute the layers' products under all the transforms at once: each column is read once.

        They stay in memory (n x p numbers for each layer and transform): meant for small validation problems.
        """
        problem = _with_nuisance(problem.part_of.whole if problem.part_of else problem)
        self._alive.append(problem.updates)
        transforms = tuple(dict.fromkeys(transform for _, transform in blocks))
        for names in dict.fromkeys(group for layers, _ in blocks for group in layers):
            self._keep(problem, names, transforms)

    def _keep(self, problem: Problem, names: tuple[str, ...], transforms: Sequence[Transform]) -> None:
        """Compute and keep the missing products of one layer.

        Many problems use the same table, and most transforms do not depend on which rows are fitted. So up to
        :data:`GRAM_ROWS` rows one product of all rows with all (n x n) serves all problems.
        """
        updates, rows = problem.updates, _rows(problem)
        few = num_rows(updates) <= GRAM_ROWS
        shared = [t for t in transforms if few and t in ROW_WISE]
        if missing := [t for t in shared if (id(updates), names, t) not in self._grams]:
            every = np.arange(num_rows(updates))
            for transform, gram in self._computed(updates, names, every, every, missing).items():
                self._grams[id(updates), names, transform] = gram
        others = [t for t in transforms if t not in shared]
        if missing := [t for t in others if (rows, names, t) not in self._products]:
            for transform, part in self._computed(updates, names, problem.fit, problem.ask, missing).items():
                self._products[rows, names, transform] = part

    def _of_layer(self, problem: Problem, names: tuple[str, ...], transform: Transform) -> Products:
        if num_rows(problem.updates) <= GRAM_ROWS:
            self._keep(problem, names, (transform,))
        if (gram := self._grams.get((id(problem.updates), names, transform))) is not None:
            return gram.columns(problem.fit)
        if (known := self._products.get((_rows(problem), names, transform))) is not None:
            return known
        return self._computed(problem.updates, names, problem.fit, problem.ask, (transform,))[transform]

    def _computed(
        self,
        updates: Updates,
        names: tuple[str, ...],
        fit: Ints,
        ask: Ints,
        transforms: Sequence[Transform],
    ) -> dict[Transform, Products]:
        key = (id(updates), names)
        if "std" in transforms and key not in self._norms:
            self._norms[key] = row_norms(updates, names)
        return products(updates, names, fit, transforms, self._norms.get(key), ask)


_Rows = tuple[int, bytes, bytes]
"""A table (by its id), and its rows that are fitted and asked."""


def _rows(problem: Problem) -> _Rows:
    return id(problem.updates), problem.fit.tobytes(), problem.ask.tobytes()


GRAM_ROWS = 4096
"""Most rows of which all inner products are kept: 64 MiB for each layer and transform."""


def _with_nuisance(problem: Problem) -> Problem:
    """Return the problem whose kernels reach the nuisance rows too."""
    if problem.denoise is None:
        return problem
    return replace(problem, fit=np.concatenate([problem.fit, problem.nuisance]), denoise=None)


class Attack(Protocol):
    """An attack; ``name`` is unique inside an experiment.

    ``symmetric``: it treats all options alike and draws nothing, so that exchanged labels exchange its columns.
    """

    symmetric: ClassVar[bool]

    @property
    def name(self) -> str:
        """Name in tables."""

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """Choose the settings on problems whose answers are known (prior data only)."""

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Return (q, m) scores, higher = more likely."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The choice of validation: the attack's settings, the temperature of its scores, and its log-loss (nats) there."""

    settings: Settings
    temperature: float
    log_loss: float


def scores_of(attack: Attack, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
    """Return an attack's scores (q, m) of a problem; where it has modes, by a model for each mode."""
    if problem.modes is None:
        return attack.scores(problem, settings, work, rng)
    scores = np.empty((len(problem.ask), problem.options))
    for rows, part in problem.parts():
        scores[rows] = attack.scores(part, settings, work, rng)
    return scores


def tune(attack: Attack, validations: Sequence[Validation], work: Workspace, rng: torch.Generator) -> Tuned:
    """Choose settings and temperature on the validation problems; chance there is log(m) nats."""
    settings = work.settings(attack, validations)
    scored = [scores_of(attack, v.problem, settings, work, rng) for v in validations]
    loss, temperature = best_temperature(np.concatenate(scored), np.concatenate([v.answers for v in validations]))
    return Tuned(settings=settings, temperature=temperature, log_loss=loss)


def answer(attack: Attack, problem: Problem, tuned: Tuned, work: Workspace, rng: torch.Generator) -> Ranking:
    """Rank all options for each question by an attack's scores."""
    return ranked(scores_of(attack, problem, tuned.settings, work, rng), tuned.temperature, rng)


def exchanged_scores(
    attack: Attack,
    problem: Problem,
    tuned: Tuned,
    scores: Scores,
    exchanged: Ints,
    work: Workspace,
    rng: torch.Generator,
) -> Scores:
    """Return scores (q, m) of the problem whose label i is ``exchanged[i]``, given those of the problem itself.

    Such a problem teaches nothing: the AP of its scores must be that of chance. A symmetric attack needs no new fit.
    """
    if not attack.symmetric:
        return scores_of(attack, replace(problem, labels=exchanged[problem.labels]), tuned.settings, work, rng)
    moved = np.empty_like(scores)
    moved[:, exchanged] = scores
    return moved


def ranked(scores: Scores, temperature: float, rng: torch.Generator) -> Ranking:
    """Rank all options for each question: calibrated log-probabilities (q, m), ties broken at random.

    scikit-learn's AP gives tied questions the precision of the whole tie: ten votes among a hundred users would score
    below random guessing, though guessing within a tie costs the adversary nothing.
    """
    guesses = torch.rand(scores.shape, generator=rng, dtype=torch.float64).numpy()
    return Ranking(scores=log_softmax(temperature * scores, axis=1) + TIE * guesses)


def averaged(scores: Sequence[Scores], weights: Sequence[float]) -> Scores:
    """Return the normalised weighted mean (q, m) of several rankings' log-probabilities; a single one unchanged."""
    return scores[0] if len(scores) == 1 else np.asarray(log_softmax(np.average(scores, 0, weights), axis=1))


def pool(scores: Scores, senders: Sequence[str]) -> tuple[Scores, list[str]]:
    """Join all updates with one pseudonym: log-probabilities (devices, m), and the devices' names in order.

    They are the mean of a device's log-probabilities, normalised again. A sum would rank devices by their number of
    updates, because updates of one device are alike. Assumes a pseudonym that persists (linkage ``device``).
    """
    names = sorted(set(senders))
    return log_softmax(mean_by_sender(scores, senders, names), axis=1), names


def mean_by_sender(scores: Doubles, senders: Sequence[str], names: Sequence[str]) -> Doubles:
    """Return the mean of the rows of ``scores`` (q, ...) with each of the ``names`` as sender: (names, ...)."""
    position = {name: i for i, name in enumerate(names)}
    rows = np.array([position[sender] for sender in senders])
    totals = np.zeros((len(names), *scores.shape[1:]))
    np.add.at(totals, rows, scores)
    means: Doubles = totals / np.bincount(rows, minlength=len(names)).reshape(-1, *[1] * (scores.ndim - 1))
    return means


def best_temperature(scores: Scores, answers: Ints) -> tuple[float, float]:
    """Return the least mean log-loss (nats) of ``softmax(temperature * scores)`` and its temperature.

    Log-loss is convex in the temperature: the search ends where it begins to rise.
    """
    rows, best = np.arange(len(answers)), (np.inf, TEMPERATURES[0])
    for temperature in TEMPERATURES:
        loss = float(-log_softmax(temperature * scores, axis=1)[rows, answers].mean())
        if loss >= best[0]:
            break
        best = (loss, temperature)
    return best


class MlpTuned(Component):
    """``mlp-tuned``: the same network on the best kernel's coordinates, with AdamW.

    The kernel's coordinates (its eigenvectors on the prior rows) keep all distances between updates; a dense first
    layer on them is a dense first layer on the parameters, at a thousandth of the size.
    """

    symmetric: ClassVar[bool] = False
    name: Literal["mlp-tuned"] = "mlp-tuned"
    layers: tuple[str, ...] | None = None
    hidden: int = Field(default=256, ge=1)
    epochs: int = Field(default=40, ge=1)
    dimensions: int = Field(default=256, ge=1)

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """Choose the single block and transform that is best for ridge."""
        candidates = candidate_blocks(validations[0].problem.updates, self.layers, TRANSFORMS)
        blocks, _ = choose_kernel(validations, work, candidates, most=1)
        return {"blocks": blocks}

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Log-probabilities."""
        from fedprint.attacks.learner import MlpSettings
        from fedprint.attacks.reidentification.mlp import fit_mlp

        kernel = combined(problem, settings["blocks"], work)
        x = kernel_coordinates(kernel, problem.fit, self.dimensions)
        chosen = MlpSettings(hidden=self.hidden, epochs=self.epochs, batch_size=64, patience=6, adam=True)
        return fit_mlp(x[problem.fit], problem.labels, x[problem.ask], problem.options, chosen, rng, work.logger())


class Ridge(Component):
    """``ridge``: ridge regression on one-hot users, over layers and transforms chosen on the prior.

    With more than :data:`MANY` known updates it computes no kernel between these and the asked ones.
    """

    symmetric: ClassVar[bool] = True
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
            inner, centrings = known_kernel(problem, settings["blocks"])
            dual = ridge_weights(inner, problem, settings["penalty"])
            return scores_by_parameters(problem, settings["blocks"], centrings, dual)
        return ridge_scores(combined(problem, settings["blocks"], work), problem, settings["penalty"])


CHOOSERS = 256
"""On how many users ridge chooses its layers, transforms and penalty, at most."""

MANY = 2048
"""Number of known updates from which on ridge scores by weights on the parameters."""

PENALTIES = (0.03, 0.1, 0.3, 1.0)


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
    weights = ridge_weights(kernel[problem.fit], problem, penalty)
    out: Scores = (kernel[problem.ask] @ weights.astype(kernel.dtype)).astype(np.float64)
    return out


def ridge_weights(inner: NDArray[np.floating], problem: Problem, penalty: float) -> Doubles:
    """Solve ``(K + penalty I) a = Y - mean(Y)`` for the kernel ``inner`` (p, p) of the fit rows in float64: (p, m)."""
    from scipy.linalg import solve

    targets = np.eye(problem.options)[problem.labels]
    targets -= targets.mean(0)
    system = symmetric(inner)
    system[np.diag_indices_from(system)] += penalty
    weights: Doubles = solve(system, targets, assume_a="pos", overwrite_a=True, overwrite_b=True, check_finite=False)
    return weights


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


def kernel_coordinates(kernel: Floats, fit: Ints, dimensions: int) -> Floats:
    """Return coordinates (n, <= dimensions) whose inner products with the fit rows reproduce the kernel, unit scale."""
    from scipy.linalg import eigh

    last = len(fit) - 1
    leading = (max(0, last - dimensions + 1), last)
    values, vectors = eigh(symmetric(kernel[fit]), subset_by_index=leading, overwrite_a=True, check_finite=False)
    keep = np.argsort(values)[::-1]
    keep = keep[values[keep] > 1e-8 * values[keep[0]]]
    coordinates = kernel @ (vectors[:, keep] / np.sqrt(values[keep])).astype(np.float32)
    scale = np.sqrt(np.mean(coordinates[fit] ** 2))
    result: Floats = (coordinates / scale).astype(np.float32)
    return result
