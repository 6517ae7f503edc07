"""Shared by both optimisers of gradient matching: many problems at once, each with its own end.

Letters: v problems, k of them still running, d variables of each, h pairs in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Function = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(points (k, d), problems (k,)) -> values (k,) and gradients (k, d): point i belongs to problem ``problems[i]``."""

Watch = Callable[[int, Tensor, Tensor], None]
"""Called with (evaluations so far, current points (v, d), their values (v,)) after every evaluation."""


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """The final points (v, d), their values (v,), and the number of evaluations (v,) of each problem."""

    points: Tensor
    values: Tensor
    evaluations: Tensor


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a problem ends.

    It ends after ``evaluations`` of its function, at a value of ``target`` (a number or (v,)) or less, or when
    ``patience`` evaluations lowered its value by less than the share ``progress``.
    """

    evaluations: int
    target: float | Tensor = 0.0
    patience: int = 200
    progress: float = 1e-3


class Minimiser(Protocol):
    """Finds a low value of every problem."""

    def minimise(self, function: Function, start: Tensor, limits: Limits, watch: Watch | None = None) -> Minimum:
        """Minimise from ``start`` (v, d)."""


class Endings:
    """Records which problems have ended."""

    def __init__(self, limits: Limits, values: Tensor) -> None:
        self._limits = limits
        self._target = torch.as_tensor(limits.target, dtype=values.dtype, device=values.device).expand_as(values)
        self._before = values.clone()
        self.ended = values <= self._target

    def after(self, count: int, values: Tensor) -> None:
        """Take the values (v,) of all problems after ``count`` evaluations."""
        self.ended |= values <= self._target
        if count % self._limits.patience == 0:
            self.ended |= values > self._before * (1 - self._limits.progress)
            self._before = values.clone()
