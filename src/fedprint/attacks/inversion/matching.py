"""Gradient matching: search images with the observed gradient (deep leakage; spn, section 4.1; papers.md 4.4).

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
    """Images (v, b, c, h, w) in [0, 1], targets (v, b, C), the final objective (v,), and evaluations (v,).

    ``raw`` are the final images of the search: their pixels may leave [0, 1] (papers.md 4.1 measures these).
    """

    images: Tensor
    raw: Tensor
    targets: Tensor
    values: Tensor
    evaluations: Tensor
    trajectory: Trajectory


class GradientMatching(Objective):
    """``gradient-matching``: the distance between gradients is minimised over dummy images, and labels if joint.

    Victims whose objective ends above ``target`` get ``restarts`` more starts from patterns; the lowest objective is
    kept. ``evaluations`` is the number of gradients of the objective for each start.
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
        """Reconstruct the images of all victims, from the end of another search if ``begin`` is given.

        Its evaluations and trajectory are continued. Raises FedprintError where ``labels`` is known and the adversary
        has none.
        """
        blocks = torch.split(torch.arange(len(victims)), self.block)
        parts = [self._block(victims, index, knowledge, seed, begin) for index in blocks]
        trails = [part.trajectory for part in parts]
        whole = Reconstruction(
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
            return whole
        after, trail = begin.evaluations + whole.evaluations, begin.trajectory.then(whole.trajectory)
        return replace(whole, evaluations=after, trajectory=trail)

    def _block(
        self, victims: Victims, index: Tensor, knowledge: Knowledge, seed: int, begin: Reconstruction | None
    ) -> Reconstruction:
        search = Search(self, victims, index, knowledge, None if begin is None else begin.targets[index])
        log = Log(self.evaluations, search.pixels if self.keep_images else 0)
        if begin is None:
            minimum = self._minimise(search, index, self.start, _starts(seed, 0), log)
        else:
            minimum = self._from(search, search.around(begin.raw[index], begin.targets[index]), log)
        for restart in range(1, self.restarts + 1 if begin is None else 1):
            again = (minimum.values > self.target).nonzero()[:, 0]
            if len(again):
                other = self._minimise(search.only(again), index[again.cpu()], "pattern", _starts(seed, restart))
                minimum = _lower(minimum, other, again)
        images, targets = search.split(minimum.points)
        return Reconstruction(
            images=images.clamp(0, 1),
            raw=images,
            targets=targets,
            values=minimum.values,
            evaluations=minimum.evaluations,
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
    """Return ``b`` for the victims in ``second`` (v,), else ``a``; evaluations add up."""

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


def _lower(first: Minimum, other: Minimum, rows: Tensor) -> Minimum:
    """Return ``first`` with those of its ``rows`` replaced in which ``other`` is lower; evaluations add up."""
    points, values, used = first.points.clone(), first.values.clone(), first.evaluations.clone()
    better = other.values < values[rows]
    points[rows[better]], values[rows[better]] = other.points[better], other.values[better]
    used[rows] += other.evaluations
    return Minimum(points=points, values=values, evaluations=used)


def _starts(seed: int, start: int) -> Callable[[int], Generator]:
    """Return the generator of each victim's start number ``start``: it does not depend on the other victims."""
    return lambda victim: torch_rng(seed, "inversion", start, victim)
