"""The papers' attacks by name, as published, each also on standardised updates (gradient-leaks, 4.1.2; papers.md 2.3).

They have no settings to choose. ``layers`` are those that the papers use: the last layer of an image model, the LSTM of
a language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from fedprint.attacks.dense import nearest_rows
from fedprint.attacks.features import in_span, matrix, standardised
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.linear_svm import one_vs_rest_margins
from fedprint.attacks.reidentification.workspace import Settings, Workspace
from fedprint.component import Component
from fedprint.types import Floats, Scores


class Chance(Component):
    """``chance``: random scores; its AP must agree with the expected AP of random scores."""

    symmetric: ClassVar[bool] = False
    selectable: ClassVar[bool] = True
    name: Literal["chance"] = "chance"

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """No settings to choose."""
        return {}

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Uniform scores."""
        return torch.rand(len(problem.ask), problem.options, generator=rng, dtype=torch.float64).numpy()


class Preset(Component):
    """A published attack on the normalised updates of some layers, standardised first where the name ends in -std."""

    symmetric: ClassVar[bool] = True
    selectable: ClassVar[bool] = True
    name: str
    layers: tuple[str, ...] | None = None

    @property
    def standardise(self) -> bool:
        """Whether the updates are standardised first."""
        return self.name.endswith("-std")

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """No settings to choose."""
        return {}

    def features(self, problem: Problem) -> Floats:
        """Return the features of all rows (n, d): of unit length, standardised on the fit rows if ``standardise``."""
        x = matrix(problem.updates, self.layers)
        return standardised(x, problem.fit) if self.standardise else x


class Knn(Preset):
    """``knn``: votes of the k nearest prior updates (the papers: k = 10)."""

    name: Literal["knn", "knn-std"] = "knn"
    k: int = Field(default=10, ge=1)

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Share of votes per option."""
        x = self.features(problem)
        k = min(self.k, len(problem.fit))
        nearest = nearest_rows(x[problem.fit], x[problem.ask], k, work.device)
        votes = np.zeros((len(problem.ask), problem.options))
        for column in problem.labels[nearest].T:
            votes[np.arange(len(votes)), column] += 1 / k
        return votes


class LinearMachine(Preset):
    """A linear SVM, one-vs-rest (erratum 10); ``output: hard`` scores 1 for the predicted user only (erratum 3)."""

    output: Literal["margin", "hard"] = "margin"
    c: float = Field(default=1.0, gt=0)

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Signed margins per option; options without a prior update get the least margin."""
        x = in_span(self.features(problem), problem.fit, work.device)
        margins = one_vs_rest_margins(x[problem.fit], problem.labels, x[problem.ask], self.c, work.device)
        full = np.full((len(margins), problem.options), margins.min() - 1.0)
        full[:, np.unique(problem.labels)] = margins
        return (full == full.max(1, keepdims=True)).astype(np.float64) if self.output == "hard" else full


class Svm(LinearMachine):
    """``svm``: scored by its margins, unless ``output`` is hard."""

    name: Literal["svm", "svm-std"] = "svm"


class SvmHard(LinearMachine):
    """``svm-hard``: the same with hard predictions, as the published scores look (erratum 3)."""

    name: Literal["svm-hard"] = "svm-hard"
    output: Literal["hard"] = "hard"


class Mlp(Preset):
    """``mlp``: the papers' network, SGD .01, momentum .9, decay 1e-6, dropout .2, hidden 128.

    The papers give neither the number of epochs nor the batch size: here it trains for at most ``epochs`` and stops
    early on held-out prior updates. Standardised rows of unit length would learn too little at this learning rate: they
    are put in the span of the prior rows and scaled to entries of unit mean square.
    """

    symmetric: ClassVar[bool] = False
    selectable: ClassVar[bool] = True
    name: Literal["mlp", "mlp-std"] = "mlp"
    epochs: int = Field(default=100, ge=1)
    batch_size: int = Field(default=32, ge=1)

    def inputs(self, problem: Problem) -> Floats:
        """Return the network's inputs for all rows (n, d)."""
        x = self.features(problem)
        if not self.standardise:
            return x
        inside = in_span(x, problem.fit)
        scaled: Floats = inside / np.sqrt(np.mean(inside[problem.fit] ** 2))
        return scaled

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Log-probabilities."""
        from fedprint.attacks.learner import MlpSettings
        from fedprint.attacks.reidentification.mlp import fit_mlp

        x = self.inputs(problem)
        chosen = MlpSettings(epochs=self.epochs, batch_size=self.batch_size)
        return fit_mlp(x[problem.fit], problem.labels, x[problem.ask], problem.options, chosen, rng, work.logger())
