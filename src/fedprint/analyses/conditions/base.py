"""Re-identification under conditions that vary: how much the adversary has to learn from (papers.md 2.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from fedprint.analyses.base import SELECTED, Analysis, Bench, restricted
from fedprint.analyses.trials import Key, Trial
from fedprint.attacks.problem import Problem


class TrainingUpdates(Analysis):
    """``training-updates``: AP by the number of recorded prior updates per user, 1, 2, 4 ... all.

    The updates are drawn at random and nested: those of 2 include that of 1. Users with fewer updates use all of them.
    """

    name: Literal["training-updates"] = "training-updates"
    attacks: tuple[str, ...] = (SELECTED,)
    most: int = Field(default=64, ge=1)

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per attack and amount."""
        rank = _rank_within(bench.problem, bench.rng(self.name))
        for k in doubling(min(self.most, int(rank.max()) + 1)):
            problem = restricted(bench.problem, fit=rank < k)
            for name in self.attacks:
                bench.progress(f"{k} updates, {name}")
                keys: dict[str, Key] = {"attack": bench.attack(name)[0].name, "training_updates": k}
                yield bench.trial(problem, bench.scores(name, problem, self.name, k), keys)


def doubling(most: int) -> list[int]:
    """Return 1, 2, 4 ... and ``most`` itself."""
    return [2**i for i in range((most - 1).bit_length())] + [most]


def _rank_within(problem: Problem, rng: torch.Generator) -> np.ndarray:
    """Return each fit row's position (p,) in a random order of its user's rows."""
    shuffled = torch.randperm(len(problem.fit), generator=rng).numpy()
    order = np.lexsort([shuffled, problem.labels])
    starts = np.searchsorted(problem.labels[order], problem.labels[order], side="left")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - starts
    return rank
