"""Kernels of many conditions on one table of updates, at little more than the cost of one."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import numpy as np

from fedprint.attacks.features import ROW_WISE, Block, Products, kernel, products
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.types import Floats


class SlicedWorkspace(Workspace):
    """A workspace for problems that fit on some of the rows that ``base`` fits on.

    The inner products of all rows with those of ``base`` are computed once. A problem takes its columns of them and is
    centred on its fit rows: the same kernel as without slices, except for the rounding of float32. Problems on other
    updates or rows, and the transform ``std``, are computed separately. Kernels of slices are not kept.
    """

    def __init__(self, base: Problem, device: str = "cpu") -> None:
        super().__init__(device)
        self._base = base
        self._whole: dict[Block, Products] = {}

    def prepare(self, problem: Problem, blocks: Sequence[Block]) -> None:
        """Compute products in advance for problems that are no slices; those of the base are computed when needed."""
        needed = blocks if not self._holds(problem) else [block for block in blocks if block[1] not in ROW_WISE]
        super().prepare(problem, needed)

    def _holds(self, problem: Problem) -> bool:
        return problem.updates is self._base.updates and bool(np.isin(problem.fit, self._base.fit).all())

    def kernel(self, problem: Problem, block: Block) -> Floats:
        """Return the kernel (n, p) of one block."""
        if block[1] not in ROW_WISE or not self._holds(problem):
            return super().kernel(problem, block)
        order = np.argsort(self._base.fit, kind="stable")
        columns = order[np.searchsorted(self._base.fit[order], problem.fit)]
        return kernel(self._products_of_base(block).columns(columns), problem.fit)

    def _products_of_base(self, block: Block) -> Products:
        if block not in self._whole:
            layers, transform = block
            base = self._base
            parts = (products(base.updates, names, base.fit, (transform,), device=self.device) for names in layers)
            self._whole[block] = functools.reduce(operator.add, (part[transform] for part in parts))
        return self._whole[block]
