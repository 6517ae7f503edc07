"""Canary clients: they send crafted updates, and a coin decides for each whether it takes part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedprint.accounting.events import Adjacency
from fedprint.params import flatten, unflatten
from fedprint.rng import numpy_rng, torch_rng
from fedprint.types import Backend, ClientJob, ClientResult, Device, Doubles, FedprintError, LocalTraining, Params

_PREFIX = "canary-"


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """m orthogonal directions with a coin each.

    Each canary owns ``size`` coordinates, drawn at random, with random signs: ``owner`` (d,) is the canary of each
    coordinate, m for a coordinate without one, and ``signs`` (d,) are +-1. ``included`` (m,) are the coins, the audit's
    truth.
    """

    owner: Tensor
    signs: Tensor
    size: int
    included: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Return m."""
        return len(self.included)

    def direction(self, canary: int) -> Tensor:
        """Return the unit vector (d,) of one canary."""
        return (self.owner == canary).double() * self.signs / math.sqrt(self.size)

    def components(self, vector: Tensor) -> Doubles:
        """Return the components (m,) of ``vector`` (d,) along all directions."""
        sums = torch.zeros(self.count + 1, dtype=torch.float64)
        sums.index_add_(0, self.owner, self.signs * vector.double())
        components: Doubles = (sums[:-1] / math.sqrt(self.size)).numpy()
        return components

    def devices(self) -> tuple[Device, ...]:
        """Return a device for each canary, included or not: its coin must not change which other devices are drawn."""
        nothing = {"x": torch.zeros(1), "y": torch.zeros(1)}
        return tuple(
            Device(device_id=f"{_PREFIX}{i:06d}", user_id=-1 - i, role="anonymous", examples=nothing)
            for i in range(self.count)
        )


def draw_canaries(count: int, parameters: int, seed: int) -> Canaries:
    """Draw directions and coins. Raises FedprintError for more canaries than parameters."""
    if not 1 <= count <= parameters:
        raise FedprintError(f"audit: {count} canaries for {parameters} parameters; choose 1 to {parameters} canaries")
    size = parameters // count
    positions = torch.randperm(parameters, generator=torch_rng(seed, "canaries", "places"))[: count * size]
    owner = torch.full((parameters,), count)
    owner[positions] = torch.arange(count).repeat_interleave(size)
    signs = 2.0 * torch.randint(2, (parameters,), generator=torch_rng(seed, "canaries", "signs")).double() - 1
    coins = numpy_rng(seed, "canaries", "coins").random(count) < 0.5
    return Canaries(owner=owner, signs=signs, size=size, included=coins)


@dataclass(kw_only=True)
class WithCanaries:
    """A backend that trains clients with ``inner``; a canary sends ``norm`` times its direction.

    A canary that is not included stands for a client that is absent: it sends zeros (add-remove), or the opposite
    direction (replace-one). A ``norm`` far above the clipping norm also tests the clipping.
    """

    canaries: Canaries
    inner: Backend | None
    norm: float
    adjacency: Adjacency
    name: str = "canaries"

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Yield what each client sends, in job order."""
        clients = [job for job in jobs if not job.device_id.startswith(_PREFIX)]
        trained = iter(self.inner.run(clients, params, training)) if self.inner is not None else iter(())
        for job in jobs:
            yield self._crafted(job, params) if job.device_id.startswith(_PREFIX) else next(trained)

    def _crafted(self, job: ClientJob, params: Params) -> ClientResult:
        canary = int(job.device_id.removeprefix(_PREFIX))
        absent = 0.0 if self.adjacency == "add-remove" else -1.0
        factor = self.norm * (1.0 if self.canaries.included[canary] else absent)
        like = flatten(params)
        update = unflatten((factor * self.canaries.direction(canary)).to(like), params)
        return ClientResult(device_id=job.device_id, update=update, num_examples=1, loss=0.0)
