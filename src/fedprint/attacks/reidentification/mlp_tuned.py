"""``mlp-tuned``: the papers' network on the kernel that ridge would choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from fedprint.attacks.dense import leading_eigenpairs
from fedprint.attacks.features import TRANSFORMS
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.ridge import candidate_blocks, choose_kernel, combined, symmetric
from fedprint.attacks.reidentification.workspace import Settings, Workspace
from fedprint.component import Component
from fedprint.types import Floats, Ints, Scores


class MlpTuned(Component):
    """``mlp-tuned``: the same network on the best kernel's coordinates, with AdamW.

    The kernel's coordinates (its eigenvectors on the prior rows) keep all distances between updates; a dense first
    layer on them is a dense first layer on the parameters, at a thousandth of the size.
    """

    symmetric: ClassVar[bool] = False
    selectable: ClassVar[bool] = True
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
        x = kernel_coordinates(kernel, problem.fit, self.dimensions, work.device)
        chosen = MlpSettings(hidden=self.hidden, epochs=self.epochs, batch_size=64, patience=6, adam=True)
        return fit_mlp(x[problem.fit], problem.labels, x[problem.ask], problem.options, chosen, rng, work.logger())


def kernel_coordinates(kernel: Floats, fit: Ints, dimensions: int, device: str = "cpu") -> Floats:
    """Return coordinates (n, <= dimensions) whose inner products with the fit rows reproduce the kernel, unit scale."""
    values, vectors = leading_eigenpairs(symmetric(kernel[fit]), dimensions, device)
    keep = np.argsort(values)[::-1]
    keep = keep[values[keep] > 1e-8 * values[keep[0]]]
    coordinates = kernel @ (vectors[:, keep] / np.sqrt(values[keep])).astype(np.float32)
    scale = np.sqrt(np.mean(coordinates[fit] ** 2))
    result: Floats = (coordinates / scale).astype(np.float32)
    return result
