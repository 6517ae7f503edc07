"""The course of a search, recorded while it runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """The course of the search from the first start, after some ``evaluations`` (s), of which the first is 1.

    ``values`` (s, v) of the objective; ``images`` (s, v, b, c, h, w), empty unless asked for.
    """

    evaluations: tuple[int, ...]
    values: Tensor
    images: Tensor

    def then(self, later: Trajectory) -> Trajectory:
        """Return this search followed by one that began at its end; values are those of each one's objective."""
        end = self.evaluations[-1]
        return Trajectory(
            evaluations=(*self.evaluations, *(end + count for count in later.evaluations)),
            values=torch.cat([self.values, later.values]),
            images=torch.cat([self.images, later.images]),
        )

    def either(self, other: Trajectory, second: Tensor) -> Trajectory:
        """Return the ``other`` for the victims in ``second`` (v,), else this one; each keeps its last values."""
        at = tuple(sorted({*self.evaluations, *other.evaluations}))
        a, b = self._at(at), other._at(at)
        images = a.images
        if len(a.images) and len(b.images):
            images = torch.where(second.reshape(-1, *[1] * (a.images.dim() - 2)), b.images, a.images)
        return Trajectory(evaluations=at, values=torch.where(second, b.values, a.values), images=images)

    def _at(self, evaluations: tuple[int, ...]) -> Trajectory:
        last = torch.searchsorted(torch.tensor(self.evaluations), torch.tensor(evaluations), right=True) - 1
        images = self.images[last.to(self.images.device)] if len(self.images) else self.images
        return Trajectory(evaluations=evaluations, values=self.values[last.to(self.values.device)], images=images)


class Log:
    """Records the course of a search at 1, 2, 5, 10, 20, 50, ... evaluations and at the last."""

    def __init__(self, evaluations: int, pixels: int) -> None:
        decades = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
        self.at = (*(count for count in decades if count < evaluations), evaluations)
        self._pixels, self._values, self._images = pixels, list[Tensor](), list[Tensor]()
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, count: int, points: Tensor, values: Tensor) -> None:
        """Take the state after ``count`` evaluations."""
        self._last = points, values
        if count in self.at:
            self._write()

    def trajectory(self, victims: int, shape: tuple[int, ...]) -> Trajectory:
        """Return the recorded course; after an early end the last values are repeated."""
        while len(self._values) < len(self.at):
            self._write()
        kept = torch.stack(self._images) if self._pixels else torch.empty(0)
        images = kept.reshape(-1, victims, *shape)
        return Trajectory(evaluations=self.at, values=torch.stack(self._values), images=images)

    def _write(self) -> None:
        assert self._last is not None
        self._values.append(self._last[1].clone())
        if self._pixels:
            self._images.append(self._last[0][:, : self._pixels].clone())
