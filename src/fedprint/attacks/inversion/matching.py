"""Gradient matching: images whose gradient is the observed one (deep leakage; spn, section 4.1; papers.md 4.4).

Letters: v victims, b images of each, C classes. A victim is one observed gradient or update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.optimisers.adam import Adam
from fedprint.attacks.inversion.optimisers.lbfgs import Lbfgs
from fedprint.attacks.inversion.optimisers.minimise import Limits, Minimiser, Minimum
from fedprint.attacks.inversion.optimisers.starts import Start
from fedprint.attacks.inversion.optimisers.trajectory import Log, Trajectory
from fedprint.attacks.inversion.search import Objective, Search
from fedprint.attacks.inversion.victims import Victims
from fedprint.rng import torch_rng


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """Images (v, b, c, h, w) in [0, 1], targets (v, b, C), the objective (v,) at the end, evaluations (v,) spent.

    ``raw`` are the images as the search left them: their pixels may leave [0, 1] (papers.md 4.1 measures these).
    """

    images: Tensor
    raw: Tensor
    targets: Tensor
    values: Tensor
    evaluations: Tensor
    trajectory: Trajectory


class GradientMatching(Objective):
    """``gradient-matching``: dummy images, and labels where asked, descend on the distance between gradients.

    ``restarts`` more starts from patterns for what ends above ``target``; the lowest objective wins. ``evaluations``
    count gradients of the objective, of every start.
    """

    name: Literal["gradient-matching"] = "gradient-matching"
    start: Start = "grey"
    optimiser: Literal["lbfgs", "adam"] = "lbfgs"
    evaluations: int = Field(default=800, ge=2)
    target: float = Field(default=1e-10, ge=0)
    history: int = Field(default=50, ge=1)
    lr: float = Field(default=0.1, gt=0)
    signed: bool = False
    restarts: int = Field(default=0, ge=0)
    keep_images: bool = False

    def run(
        self, victims: Victims, knowledge: Knowledge = NAIVE, *, seed: int, begin: Reconstruction | None = None
    ) -> Reconstruction:
        """Reconstruct the images of all victims, from where another search ended if that is where to ``begin``.

        Evaluations and trajectories go on from there too. Raises FedprintError where labels are to be known
        and are not.
        """
        blocks = torch.split(torch.arange(len(victims)), self.block)
        parts = [self._block(victims, index, knowledge, seed, begin) for index in blocks]
        trails = [part.trajectory for part in parts]
        found = Reconstruction(
            images=torch.cat([part.images for part in parts]),
            raw=torch.cat([part.raw for part in parts]),
            targets=torch.cat([part.targets for part in parts]),
            values=torch.cat([part.values for part in parts]),
            evaluations=torch.cat([part.evaluations for part in parts]),
            trajectory=Trajectory(
                evaluations=trails[0].evaluations,
                values=torch.cat([trail.values for trail in trails], 1),
                images=torch.cat([trail.images for trail in trails], 1),
            ),
        )
        if begin is None:
            return found
        after, trail = begin.evaluations + found.evaluations, begin.trajectory.then(found.trajectory)
        return replace(found, evaluations=after, trajectory=trail)

    def _block(
        self, victims: Victims, index: Tensor, knowledge: Knowledge, seed: int, begin: Reconstruction | None
    ) -> Reconstruction:
        search = Search(self, victims, index, knowledge, None if begin is None else begin.targets[index])
        log = Log(self.evaluations, search.pixels if self.keep_images else 0)
        if begin is None:
            found = self._minimise(search, index, self.start, _starts(seed, 0), log)
        else:
            found = self._from(search, search.around(begin.raw[index], begin.targets[index]), log)
        for restart in range(1, self.restarts + 1 if begin is None else 1):
            again = (found.values > self.target).nonzero()[:, 0]
            if len(again):
                other = self._minimise(search.only(again), index[again.cpu()], "pattern", _starts(seed, restart))
                found = _lower(found, other, again)
        images, targets = search.split(found.points)
        return Reconstruction(
            images=images.clamp(0, 1),
            raw=images,
            targets=targets,
            values=found.values,
            evaluations=found.evaluations,
            trajectory=log.trajectory(len(index), (victims.images, *victims.shape)),
        )

    def _minimise(
        self, search: Search, index: Tensor, start: Start, rng_of: Callable[[int], Generator], log: Log | None = None
    ) -> Minimum:
        begin = torch.stack([search.start(start, rng_of(victim)) for victim in index.tolist()])
        return self._from(search, begin, log)

    def _from(self, search: Search, begin: Tensor, log: Log | None) -> Minimum:
        limits = Limits(evaluations=self.evaluations, target=self.target, progress=0.02)
        return self.minimiser().minimise(search, begin.to(search.like), limits, log)

    def minimiser(self) -> Minimiser:
        """Return the optimiser."""
        return Lbfgs(self.history) if self.optimiser == "lbfgs" else Adam(self.lr, signed=self.signed)


def either(a: Reconstruction, b: Reconstruction, second: Tensor) -> Reconstruction:
    """Return ``b`` for the victims that are ``second`` (v,), else ``a``; evaluations add up."""

    def of(name: str) -> Tensor:
        left, right = getattr(a, name), getattr(b, name)
        return torch.where(second.reshape(-1, *[1] * (left.dim() - 1)), right, left)

    return Reconstruction(
        images=of("images"),
        raw=of("raw"),
        targets=of("targets"),
        values=of("values"),
        evaluations=a.evaluations + b.evaluations,
        trajectory=a.trajectory.either(b.trajectory, second),
    )


def _lower(found: Minimum, other: Minimum, rows: Tensor) -> Minimum:
    """Return ``found`` with those of its ``rows`` replaced in which ``other`` is lower; evaluations add up."""
    points, values, used = found.points.clone(), found.values.clone(), found.evaluations.clone()
    better = other.values < values[rows]
    points[rows[better]], values[rows[better]] = other.points[better], other.values[better]
    used[rows] += other.evaluations
    return Minimum(points=points, values=values, evaluations=used)


def _starts(seed: int, start: int) -> Callable[[int], Generator]:
    """Return the generator of each victim's start number ``start``: it does not depend on the other victims."""
    return lambda victim: torch_rng(seed, "inversion", start, victim)
