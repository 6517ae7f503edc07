"""An attack, and the workspace in which attacks share kernels.

Every entry of ``attacks:`` is a component with two methods: ``settings`` chooses its settings on validation problems,
and ``scores`` fits what a problem learns from (recorded prior updates or shadow devices) and scores its options with
these settings.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch

from fedprint.attacks.denoise import Denoise, denoised
from fedprint.attacks.features import (
    ROW_WISE,
    Block,
    Products,
    Transform,
    Updates,
    kernel,
    num_rows,
    products,
    row_norms,
)
from fedprint.attacks.problem import Problem, Validation
from fedprint.types import Doubles, Floats, Ints, Scores

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

    from fedprint.models.curves import Curves

Settings = Mapping[str, Any]


class Attack(Protocol):
    """An attack; ``name`` is unique inside an experiment.

    ``selectable``: shadow validation may choose it. ``symmetric``: it treats all options alike and draws nothing, so
    that exchanged labels exchange its columns.
    """

    symmetric: ClassVar[bool]
    selectable: ClassVar[bool]

    @property
    def name(self) -> str:
        """Name in tables."""

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """Choose the settings on problems whose answers are known (prior data only)."""

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Return (q, m) scores, higher = more likely."""


class Workspace:
    """Label-free kernels, computed once and shared by attacks, settings and the shuffled-label check.

    Settings are chosen once too, because adversaries tune the same attack on the same problems. ``device`` (cpu, cuda)
    multiplies large matrices; all that is kept is on the CPU.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._products: dict[tuple[_Rows, tuple[str, ...], Transform], Products] = {}
        self._grams: dict[tuple[int, tuple[str, ...], Transform], Products] = {}
        self._kernels: dict[tuple[_Rows, Block], Floats] = {}
        self._denoised: dict[tuple[_Rows, Block, Denoise], Floats] = {}
        self._norms: dict[tuple[int, tuple[str, ...]], torch.Tensor] = {}
        self._settings: dict[object, Settings] = {}
        self._answers: dict[object, Floats] = {}
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

    def norms(self, updates: Updates) -> Doubles:
        """Return the length of every update (n,), all layers together."""
        names = updates.layers
        if (id(updates), names) not in self._norms:
            self._alive.append(updates)
            self._norms[id(updates), names] = row_norms(updates, names)
        lengths: Doubles = self._norms[id(updates), names][:, 0].double().numpy()
        return lengths

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

    def answered(self, problem: Problem, settings: object, compute: Callable[[], Scores]) -> Scores:
        """Return the scores that ``compute`` gives, or gave: the last :data:`ANSWERS` are kept, in float32.

        An attack's tuning, its linking and those who build on it ask for the same scores.
        """
        key = (*_rows(problem), problem.labels.tobytes(), problem.options, settings)
        if key not in self._answers:
            self._alive.append(problem.updates)
            while len(self._answers) >= ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = compute().astype(np.float32)
        return self._answers[key].astype(np.float64)

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
        return products(updates, names, fit, transforms, self._norms.get(key), ask, self.device)


_Rows = tuple[int, bytes, bytes]
"""A table (by its id), and its rows that are fitted and asked."""


def _rows(problem: Problem) -> _Rows:
    return id(problem.updates), problem.fit.tobytes(), problem.ask.tobytes()


ANSWERS = 8
"""Scores that are kept: of two validation problems and the reported one, and of as many problems of means."""

GRAM_ROWS = 4096
"""Most rows of which all inner products are kept: 64 MiB for each layer and transform."""


def _with_nuisance(problem: Problem) -> Problem:
    """Return the problem whose kernels reach the nuisance rows too."""
    if problem.denoise is None:
        return problem
    return replace(problem, fit=np.concatenate([problem.fit, problem.nuisance]), denoise=None)
