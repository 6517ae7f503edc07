"""The adversary's data about the clients whose images it reconstructs; there is no field for the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedprint.attacks.inversion.simulate import LocalSteps
from fedprint.types import Params

if TYPE_CHECKING:
    from fedprint.models.base import FedModule


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Images ``x`` (n, c, h, w) in [0, 1] that the adversary holds, with labels ``y``, (n,) or multi-hot (n, C)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        """Return n."""
        return len(self.x)

    def __getitem__(self, index: Tensor | slice) -> Labelled:
        """Return some of the images."""
        return Labelled(x=self.x[index], y=self.y[index])


@dataclass(frozen=True, kw_only=True)
class Victims:
    """The adversary's data about v clients.

    ``descents`` (v, ...) as sent; ``params`` as received, (v, ...) each or the same for all where ``shared``; ``shape``
    (c, h, w) of an image and ``images`` b, their number; ``steps`` of local training, None for a gradient;
    ``labels`` (v, b) where the adversary knows them. With several ``rounds`` r, in which each client trained on the
    same images, descents are (v, r, ...) and params (v, r, ...), or (r, ...) where shared.
    """

    model: FedModule
    params: Params
    descents: Params
    shape: tuple[int, int, int]
    classes: int
    images: int = 1
    rounds: int = 1
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

    def first(self, number: int) -> Victims:
        """Return the first of them."""
        params, descents = self.select(torch.arange(number, device=next(iter(self.descents.values())).device))
        return replace(self, params=params, descents=descents)

    def one_round(self, round: int = 0) -> Victims:
        """Return the victims with the data of one of the ``rounds``."""
        if self.rounds == 1:
            return self
        index = round if self.shared else (slice(None), round)
        return replace(
            self,
            params={name: p[index] for name, p in self.params.items()},
            descents={name: d[:, round] for name, d in self.descents.items()},
            rounds=1,
        )

    def of_one_model(self, victim: int) -> Victims:
        """Return a single victim of one round, with its own model as the shared one."""
        params, descents = self.select(torch.tensor([victim], device=next(iter(self.descents.values())).device))
        received = params if self.shared else {name: p[0] for name, p in params.items()}
        return replace(self, params=received, descents=descents, shared=True)

    def to(self, device: str) -> Victims:
        """Return the same victims with their model on another device."""
        params, descents = ({n: t.to(device) for n, t in part.items()} for part in (self.params, self.descents))
        return replace(self, model=self.model.to(device), params=params, descents=descents)

    def averaged(self) -> Params:
        """Return the mean of each client's descents over the rounds: (v, ...)."""
        return self.descents if self.rounds == 1 else {name: d.mean(1) for name, d in self.descents.items()}
