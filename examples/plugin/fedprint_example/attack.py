"""An attack: an update belongs to the user with whose prior updates its signs agree most."""

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


class SignVotes(Component):
    """``sign-votes``: each coordinate votes with its sign; ``layers`` of the model, or all."""

    symmetric: ClassVar[bool] = True  # exchanged labels exchange the columns of its scores
    selectable: ClassVar[bool] = True  # shadow validation may choose it
    name: Literal["sign-votes"] = "sign-votes"
    layers: tuple[str, ...] | None = None

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """Return nothing: there is nothing to choose on prior data."""
        return {}

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Return agreements (q, m) in [-1, 1] of the asked updates with the users; 0 for a user without an update."""
        signs = np.sign(matrix(problem.updates, self.layers)).astype(np.float64)  # (n, d)
        votes = np.zeros((problem.options, signs.shape[1]))
        np.add.at(votes, problem.labels, signs[problem.fit])
        votes /= np.maximum(np.bincount(problem.labels, minlength=problem.options), 1)[:, None]
        votes -= votes.mean(0)  # what all users have in common tells nobody apart
        agreement: Scores = signs[problem.ask] @ votes.T / signs.shape[1]
        return agreement
