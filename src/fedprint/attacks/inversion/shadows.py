"""Shadow clients: the adversary simulates what a client would send for images that it chooses.

It knows the model, the rules of the training and, if it is adaptive, the defence. It never knows a client's images,
head or codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.func import functional_call, vmap

from fedprint.attacks.inversion.alignment import as_targets
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.victims import Labelled, Victims
from fedprint.models.dual_head import DualHead
from fedprint.params import scale
from fedprint.rng import torch_rng
from fedprint.types import Params

CHUNK = 16
"""Candidates whose shadow clients are simulated at a time."""

Client = Callable[[Params, Tensor, Tensor, Sequence[Generator]], Params]
"""n clients at once: (received parameters, images (n, b, c, h, w), labels (n, b) or (n, b, C), the randomness of each)
-> the descents (n, ...) that they send."""

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
        x, y = self._public()
        return self._sent(x, y, [("out", s) for s in range(self.count)])

    def with_first(self, candidates: Labelled) -> Iterator[Params]:
        """Yield, for each of the candidates (q), what they send with it instead of their first image."""
        x, y = self._public()
        for start in range(0, len(candidates), CHUNK):
            some = candidates[start : start + CHUNK]
            held_x, held_y = (one.repeat(len(some), *[1] * (one.dim() - 1)) for one in (x, y))
            held_x[:, 0] = some.x.to(x).repeat_interleave(self.count, 0)
            held_y[:, 0] = some.y.to(y).repeat_interleave(self.count, 0)
            names = [("in", start + i, s) for i in range(len(some)) for s in range(self.count)]
            sent = self._sent(held_x, held_y, names)
            for i in range(len(some)):
                yield {name: rows[i * self.count : (i + 1) * self.count] for name, rows in sent.items()}

    def _public(self) -> tuple[Tensor, Tensor]:
        """Return the public images and labels of every client: (count, b, ...)."""
        each = [self._images(s) for s in range(self.count)]
        return torch.stack([images.x for images in each]), torch.stack([images.y for images in each])

    def _images(self, s: int) -> Labelled:
        """Return the public images of client ``s``, drawn at random."""
        rng = torch_rng(self.seed, "shadow", *self.path, "hand", s)
        return self.public[torch.randperm(len(self.public), generator=rng)[: self.victims.images]]

    def _sent(self, x: Tensor, y: Tensor, names: Sequence[tuple[str | int, ...]]) -> Params:
        """Return what clients with these images send; the randomness of each has a name."""
        like = next(iter(self.victims.descents.values()))
        rngs = [torch_rng(self.seed, "shadow", *self.path, *name) for name in names]
        return self.client(self.victims.params, x.to(like), y.to(like.device), rngs)


def plain(victims: Victims) -> Client:
    """Return a client without a defence that trains as the victims do."""
    simulate = vmap(
        simulation(victims.model, multi_label=victims.multi_label, steps=victims.steps), in_dims=(None, 0, 0)
    )

    def send(params: Params, x: Tensor, y: Tensor, rngs: Sequence[Generator]) -> Params:
        sent: Params = simulate(params, x, as_targets(victims, y, x))
        return sent

    return send


def with_secret_head(victims: Victims, *, bits: int, alpha2: float, alpha1: float = 1.0, margin: float = 1.0) -> Client:
    """Return a client with a private head (SPN); every client of every call has a new head and new codes.

    Its loss is ``alpha1 * CE + alpha2 * L_P`` (spn, eq. 18); the gradient of the second term reaches the public layers
    through the features. The head is initialised like that of the defence (models/dual_head.py) and stays fixed over
    several local steps; ``alpha1`` scales what is sent. Raises FedprintError where the victims' model cannot have a
    private head.
    """
    dual = DualHead(victims.model, bits=bits)
    simulate = vmap(
        simulation(victims.model, multi_label=victims.multi_label, steps=victims.steps), in_dims=(None, 0, 0, 0)
    )

    def drawn(rng: Generator) -> tuple[Tensor, Tensor, Tensor]:
        weight, bias = dual.draw_private(rng).values()
        return weight, bias, 2.0 * torch.randint(2, (victims.classes, bits), generator=rng) - 1

    def send(params: Params, x: Tensor, y: Tensor, rngs: Sequence[Generator]) -> Params:
        targets = as_targets(victims, y, x)
        features = _features(victims, params, x.flatten(0, 1)).view(*x.shape[:2], -1)
        weight, bias, table = (torch.stack(parts).to(x) for parts in zip(*map(drawn, rngs), strict=True))
        codes = targets @ table
        below = (margin - (features @ weight.mT + bias[:, None]) * codes > 0).to(x)
        return scale(simulate(params, x, targets, -alpha2 / alpha1 * (below * codes) @ weight), alpha1)

    return send


def behind(client: Client, shield: Shield) -> Client:
    """Return the client whose update passes a defence before it leaves."""

    def send(params: Params, x: Tensor, y: Tensor, rngs: Sequence[Generator]) -> Params:
        whole = client(params, x, y, rngs)
        sent = [shield({name: rows[i] for name, rows in whole.items()}, rng) for i, rng in enumerate(rngs)]
        return {name: torch.stack([one[name] for one in sent]) for name in whole}

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
