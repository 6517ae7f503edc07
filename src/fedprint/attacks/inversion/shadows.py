"""Shadow clients: the adversary simulates what a client would send for images that it chooses.

It knows the model, the rules of the training and, if it is adaptive, the defence. It never knows a client's images,
head or codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.func import functional_call

from fedprint.attacks.inversion.alignment import as_targets
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.victims import Labelled, Victims
from fedprint.models.dual_head import DualHead
from fedprint.params import scale
from fedprint.rng import torch_rng
from fedprint.types import Params

Client = Callable[[Params, Tensor, Tensor, Generator], Params]
"""(received parameters, images (b, c, h, w), labels (b,) or (b, C), randomness) -> the descent that is sent."""

Shield = Callable[[Params, Generator], Params]
"""A defence of one update, such as ``on_device`` of defences/on_update.py."""


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """``count`` shadow clients with ``public`` images, which train like ``client`` from the victims' shared model."""

    victims: Victims
    client: Client
    public: Labelled
    count: int
    seed: int
    path: tuple[int, ...] = ()

    def without(self) -> Params:
        """Return what they send with public images alone: descents (count, ...)."""
        return self._sent([self._images(s) for s in range(self.count)], "out")

    def with_first(self, candidate: Labelled, number: int) -> Params:
        """Return what they send with ``candidate`` (1) instead of their first image."""
        partitions = (self._images(s) for s in range(self.count))
        mixed = [
            Labelled(
                x=torch.cat([candidate.x.to(images.x), images.x[1:]]),
                y=torch.cat([candidate.y.to(images.y), images.y[1:]]),
            )
            for images in partitions
        ]
        return self._sent(mixed, "in", number)

    def _images(self, s: int) -> Labelled:
        """Return the public images of client ``s``, drawn at random."""
        rng = torch_rng(self.seed, "shadow", *self.path, "hand", s)
        return self.public[torch.randperm(len(self.public), generator=rng)[: self.victims.images]]

    def _sent(self, partitions: list[Labelled], *names: object) -> Params:
        like = next(iter(self.victims.descents.values()))
        sent = [
            self.client(
                self.victims.params,
                images.x.to(like),
                images.y.to(like.device),
                torch_rng(self.seed, "shadow", *self.path, *names, s),
            )
            for s, images in enumerate(partitions)
        ]
        return {name: torch.stack([one[name] for one in sent]) for name in sent[0]}


def plain(victims: Victims) -> Client:
    """Return a client without a defence that trains as the victims do."""
    simulate = simulation(victims.model, multi_label=victims.multi_label, steps=victims.steps)

    def send(params: Params, x: Tensor, y: Tensor, rng: Generator) -> Params:
        return simulate(params, x, as_targets(victims, y, x))

    return send


def with_secret_head(victims: Victims, *, bits: int, alpha2: float, alpha1: float = 1.0, margin: float = 1.0) -> Client:
    """Return a client with a private head (SPN); head and codes are new at every call.

    Its loss is ``alpha1 * CE + alpha2 * L_P`` (spn, eq. 18); the gradient of the second term reaches the public layers
    through the features. The head is initialised like that of the defence (models/dual_head.py) and stays fixed over
    several local steps; ``alpha1`` scales what is sent. Raises FedprintError where the victims' model cannot have a
    private head.
    """
    dual = DualHead(victims.model, bits=bits)
    simulate = simulation(victims.model, multi_label=victims.multi_label, steps=victims.steps)

    def send(params: Params, x: Tensor, y: Tensor, rng: Generator) -> Params:
        targets = as_targets(victims, y, x)
        features = _features(victims, params, x)
        weight, bias = (p.to(x) for p in dual.draw_private(rng).values())
        codes = targets @ (2.0 * torch.randint(2, (victims.classes, bits), generator=rng) - 1).to(x)
        below = (margin - (features @ weight.T + bias) * codes > 0).to(x)
        return scale(simulate(params, x, targets, -alpha2 / alpha1 * (below * codes) @ weight), alpha1)

    return send


def behind(client: Client, shield: Shield) -> Client:
    """Return the client whose update passes a defence before it leaves."""

    def send(params: Params, x: Tensor, y: Tensor, rng: Generator) -> Params:
        return shield(client(params, x, y, rng), rng)

    return send


class _Features(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.model.features(x)  # type: ignore[operator]
        return features


def _features(victims: Victims, params: Params, x: Tensor) -> Tensor:
    module = _Features(victims.model)
    features: Tensor = functional_call(module, {f"model.{name}": p for name, p in params.items()}, (x,))
    return features.detach()
