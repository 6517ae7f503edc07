"""A re-identification attack in one file: an update belongs to the user whose mean update it resembles most.

To use it, copy this file to src/fedprint/attacks/reidentification/centroid.py and import ``Centroid`` in
src/fedprint/kinds/components.py, the registry of components, and add it to ``Attack`` there. Then::

    fedprint run quickstart --set 'attacks=[{name: chance}, {name: centroid}]'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch

from fedprint.attacks.features import matrix
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.workspace import Settings, Workspace
from fedprint.component import Component
from fedprint.types import Scores


class Centroid(Component):
    """``centroid``: cosine similarity to the mean of each user's prior updates; ``layers`` of the model, or all."""

    symmetric: ClassVar[bool] = True  # exchanged labels exchange the columns of its scores
    selectable: ClassVar[bool] = True  # shadow validation may choose it
    name: Literal["centroid"] = "centroid"
    layers: tuple[str, ...] | None = None

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """Return nothing: there is nothing to choose on prior data."""
        return {}

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Return similarities (q, m) of the asked updates to the users; a user without an update scores 0."""
        x = matrix(problem.updates, self.layers)  # (n, d), rows of length 1
        centroids = np.zeros((problem.options, x.shape[1]))
        np.add.at(centroids, problem.labels, x[problem.fit])
        centroids /= np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-30)
        similarities: Scores = x[problem.ask] @ centroids.T
        return similarities
