"""Defences at point 2: on the update as it leaves the device, and on the server's mean."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from fedprint.component import Component
from fedprint.types import GaussianEvent, Params


class Noise(Component):
    """``noise``: every coordinate of the update gets N(0, sigma^2) before it leaves the device (gradient-leaks, 6.1).

    ``sigma`` is the standard deviation; the paper's grid is in sigma^2. Without clipping the update's sensitivity is
    unbounded, so no privacy event is claimed.
    """

    name: Literal["noise"] = "noise"
    sigma: float = Field(ge=0)

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return ``update + N(0, sigma^2)``; sigma 0 returns the update itself."""
        if self.sigma == 0:
            return update
        return {name: tensor + self.sigma * _normal_like(tensor, rng) for name, tensor in update.items()}

    def on_server(self, mean: Params, cohort_size: int, rng: Generator) -> Params:
        """The server changes nothing."""
        return mean

    def event(self) -> GaussianEvent | None:
        """No clipping, no bound on the sensitivity, no guarantee."""
        return None


def _normal_like(tensor: Tensor, rng: Generator) -> Tensor:
    """Draw on the CPU, so that the noise does not depend on where the model runs."""
    return torch.randn(tensor.shape, generator=rng, dtype=tensor.dtype).to(tensor.device)
