"""How a search goes, written down on the way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """How the search from the first start went, after some ``evaluations`` (s).

    ``values`` (s, v) of the objective; ``images`` (s, v, b, c, h, w), empty unless asked for.
    """

    evaluations: tuple[int, ...]
    values: Tensor
    images: Tensor


class Log:
    """Writes down how a search goes, at 1, 2, 5, 10, 20, 50, ... evaluations and at the last."""

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
        """Return what was written; after an early end it goes on as it ended."""
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
