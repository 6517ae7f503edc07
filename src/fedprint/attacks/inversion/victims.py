"""What the adversary has of the clients whose images it wants; there is no field for the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from fedprint.attacks.inversion.simulate import LocalSteps
from fedprint.types import Params

if TYPE_CHECKING:
    from fedprint.models.base import FedModule


@dataclass(frozen=True, kw_only=True)
class Victims:
    """What the adversary has of v clients.

    ``descents`` (v, ...) as sent; ``params`` as received, (v, ...) each or the same for all where ``shared``; ``shape``
    (c, h, w) of an image and ``images`` b, their number; ``steps`` of local training, None for a gradient;
    ``labels`` (v, b) where the adversary knows them.
    """

    model: FedModule
    params: Params
    descents: Params
    shape: tuple[int, int, int]
    classes: int
    images: int = 1
    shared: bool = True
    multi_label: bool = False
    steps: LocalSteps | None = None
    labels: Tensor | None = None

    def __len__(self) -> int:
        """Return v."""
        return len(next(iter(self.descents.values())))

    def select(self, index: Tensor) -> tuple[Params, Params]:
        """Return parameters and descents of the victims ``index``."""
        params = self.params if self.shared else {name: p[index] for name, p in self.params.items()}
        return params, {name: d[index] for name, d in self.descents.items()}
