"""Gradient matching: images whose gradient is the observed one (deep leakage; spn, section 4.1; papers.md 4.4).

Letters: v victims, b images of each, C classes. A victim is one observed gradient or update.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor
from torch.func import grad_and_value, vmap
from torch.nn import functional

from fedprint.attacks.inversion.adam import Adam
from fedprint.attacks.inversion.labels import Expected, expected_from, labels_from
from fedprint.attacks.inversion.lbfgs import Lbfgs
from fedprint.attacks.inversion.minimise import Limits, Minimiser, Minimum
from fedprint.attacks.inversion.objectives import Distance, Knowledge, Prior, distance, prior_cost
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.starts import Start, start_images
from fedprint.attacks.inversion.victims import Victims
from fedprint.component import Component
from fedprint.rng import torch_rng
from fedprint.types import FedprintError, Params

NAIVE = Knowledge()


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """How the search from the first start went, after some ``evaluations`` (s).

    ``values`` (s, v) of the objective; ``images`` (s, v, b, c, h, w), empty unless asked for.
    """

    evaluations: tuple[int, ...]
    values: Tensor
    images: Tensor


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """Images (v, b, c, h, w) in [0, 1], targets (v, b, C), the objective (v,) at the end, evaluations (v,) spent."""

    images: Tensor
    targets: Tensor
    values: Tensor
    evaluations: Tensor
    trajectory: Trajectory


class GradientMatching(Component):
    """``gradient-matching``: dummy images, and labels where asked, descend on the distance between gradients.

    ``labels``: known to the adversary, from a rule on the last layer (labels.py), or joint: found with the images, as
    in deep leakage. ``restarts`` more starts from patterns for what ends above ``target``; the lowest objective wins.
    ``tv``, ``nats`` and ``box`` are the image prior (objectives.py). ``block`` victims are searched together; the last
    digits of a result depend on it. ``evaluations`` count gradients of the objective, of every start.
    """

    name: Literal["gradient-matching"] = "gradient-matching"
    distance: Distance = "l2"
    start: Start = "grey"
    labels: Literal["known", "row-sum", "sign", "bias", "counts", "joint"] = "row-sum"
    optimiser: Literal["lbfgs", "adam"] = "lbfgs"
    evaluations: int = Field(default=800, ge=2)
    target: float = Field(default=1e-10, ge=0)
    history: int = Field(default=50, ge=1)
    lr: float = Field(default=0.1, gt=0)
    signed: bool = False
    restarts: int = Field(default=0, ge=0)
    tv: float = Field(default=0.0, ge=0)
    nats: float = Field(default=0.0, ge=0)
    box: float = Field(default=0.0, ge=0)
    block: int = Field(default=32, ge=1)
    keep_images: bool = False

    def run(self, victims: Victims, knowledge: Knowledge = NAIVE, *, seed: int) -> Reconstruction:
        """Reconstruct the images of all victims. Raises FedprintError where labels are to be known and are not."""
        blocks = torch.split(torch.arange(len(victims)), self.block)
        parts = [self._block(victims, index, knowledge, seed) for index in blocks]
        trails = [part.trajectory for part in parts]
        return Reconstruction(
            images=torch.cat([part.images for part in parts]),
            targets=torch.cat([part.targets for part in parts]),
            values=torch.cat([part.values for part in parts]),
            evaluations=torch.cat([part.evaluations for part in parts]),
            trajectory=Trajectory(
                evaluations=trails[0].evaluations,
                values=torch.cat([trail.values for trail in trails], 1),
                images=torch.cat([trail.images for trail in trails], 1),
            ),
        )

    def _block(self, victims: Victims, index: Tensor, knowledge: Knowledge, seed: int) -> Reconstruction:
        search = _Search(self, victims, index, knowledge)
        log = _Log(self.evaluations, search.pixels if self.keep_images else 0)
        found = self._minimise(search, index, self.start, _starts(seed, 0), log)
        for restart in range(1, self.restarts + 1):
            again = (found.values > self.target).nonzero()[:, 0]
            if len(again):
                other = self._minimise(search.only(again), index[again.cpu()], "pattern", _starts(seed, restart))
                found = _lower(found, other, again)
        images, targets = search.split(found.points)
        return Reconstruction(
            images=images.clamp(0, 1),
            targets=targets,
            values=found.values,
            evaluations=found.evaluations,
            trajectory=log.trajectory(len(index), (victims.images, *victims.shape)),
        )

    def _minimise(
        self, search: _Search, index: Tensor, start: Start, rng_of: Callable[[int], Generator], log: _Log | None = None
    ) -> Minimum:
        begin = torch.stack([search.start(start, rng_of(victim)) for victim in index.tolist()])
        limits = Limits(evaluations=self.evaluations, target=self.target, progress=0.02)
        return self.minimiser().minimise(search, begin.to(search.like), limits, log)

    def minimiser(self) -> Minimiser:
        """Return the optimiser."""
        return Lbfgs(self.history) if self.optimiser == "lbfgs" else Adam(self.lr, signed=self.signed)


class _Search:
    """The objective of some victims as a function of vectors: pixels, then the logits of joint labels."""

    def __init__(self, attack: GradientMatching, victims: Victims, index: Tensor, knowledge: Knowledge) -> None:
        self._attack, self._victims, self._knowledge = attack, victims, knowledge
        self._index = index.to(next(iter(victims.descents.values())).device)
        self.like = next(iter(victims.descents.values()))
        self.pixels = victims.images * math.prod(victims.shape)
        self._joint = attack.labels == "joint"
        self._targets = self._known_targets()
        self._simulate = simulation(victims.model, multi_label=victims.multi_label, steps=victims.steps)
        places = (0, None if victims.shared else 0, 0, 0)
        self._derivative = vmap(grad_and_value(self._objective), in_dims=places)
        self._chosen: tuple[Tensor, tuple[Params, Params, Tensor]] | None = None

    def only(self, rows: Tensor) -> _Search:
        """Return the search for some of these victims."""
        return _Search(self._attack, self._victims, self._index[rows], self._knowledge)

    def start(self, kind: Start, rng: Generator) -> Tensor:
        """Return where one victim begins: (d,)."""
        count = self._victims.images
        begin = start_images(kind, count, self._victims.shape, rng).flatten()
        if not self._joint:
            return begin
        return torch.cat([begin, torch.randn(count * self._victims.classes, generator=rng)])

    def split(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return images (k, b, c, h, w) and targets (k, b, C) of points (k, d) of all these victims."""
        shape = (len(points), self._victims.images)
        images = points[:, : self.pixels].reshape(*shape, *self._victims.shape)
        if self._joint:
            return images, self._whole(points[:, self.pixels :].reshape(*shape, -1))
        return images, self._targets

    def __call__(self, points: Tensor, problems: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (k,) and gradients (k, d): what an optimiser asks."""
        if self._chosen is None or self._chosen[0] is not problems:
            self._chosen = problems, (*self._victims.select(self._index[problems]), self._targets[problems])
        gradients, values = self._derivative(points, *self._chosen[1])
        return values.detach(), gradients.detach()

    def _objective(self, point: Tensor, params: Params, observed: Params, targets: Tensor) -> Tensor:
        attack, count = self._attack, self._victims.images
        x = point[: self.pixels].reshape(count, *self._victims.shape)
        y = self._whole(point[self.pixels :].reshape(count, -1)) if self._joint else targets
        found = self._simulate(params, x, y)
        prior = Prior(tv=attack.tv, nats=attack.nats, box=attack.box)
        apart = distance(attack.distance, found, observed, masked=self._knowledge.masked)
        return apart + prior_cost(x, prior, self._knowledge, observed)

    def _whole(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self._victims.multi_label else logits.softmax(-1)

    def _known_targets(self) -> Tensor:
        """Return targets (k, b, C): known, by a rule, or empty ones where they are searched for."""
        victims, labels = self._victims, self._attack.labels
        if labels == "joint":
            return self.like.new_zeros(len(self._index), victims.images, 0)
        if labels == "known":
            if victims.labels is None:
                raise FedprintError("attack.labels: known, but this adversary has no labels; choose row-sum or joint")
            found = victims.labels.to(self.like.device)[self._index]
        elif victims.multi_label:
            raise FedprintError(f"attack.labels: rule '{labels}' is for one label per image; choose known or joint")
        else:
            params, descents = victims.select(self._index)
            expected = expected_of(victims, params) if labels == "counts" else None
            found = labels_from(labels, descents, victims.images, expected)
        return found.to(self.like) if victims.multi_label else functional.one_hot(found, victims.classes).to(self.like)


class _Log:
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


def expected_of(victims: Victims, params: Params) -> Expected:
    """Return what models of ``params`` make of a grey image of the victims' shape (labels.py, rule counts)."""
    like = next(iter(params.values()))
    grey = like.new_full((1, *victims.shape), 0.5)
    first = functional.one_hot(torch.zeros(1, dtype=torch.long), victims.classes).to(like)
    each = {name: p[None] for name, p in params.items()} if victims.shared else params
    return expected_from(vmap(simulation(victims.model), in_dims=(0, None, None))(each, grey, first))


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
