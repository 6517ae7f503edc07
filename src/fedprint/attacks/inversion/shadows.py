"""Shadow clients: the adversary simulates what a client would send for images that it chooses.

It knows the model, the rules of the training and, if it is adaptive, the defence. It never knows a client's images,
head or codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

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

NUMBERS = 1 << 23
"""Of how many numbers the updates of shadow clients are that are simulated at a time, at most, or of one candidate."""

Training = Callable[[Params, Tensor, Tensor, Sequence[Generator]], Params]
"""n clients at once: (received parameters, images (n, b, c, h, w), labels (n, b) or (n, b, C), the randomness of each)
-> their descents (n, ...)."""

Shield = Callable[[Params, Generator], Params]
"""A defence of one update, such as ``on_device`` of defences/on_update.py."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """What a client does, as an adversary imagines it: ``train``, then pass its update through ``shields`` in order."""

    train: Training
    shields: tuple[Shield, ...] = ()

    def __call__(self, params: Params, x: Tensor, y: Tensor, rngs: Sequence[Generator]) -> Params:
        """Return the descents (n, ...) that n clients send, for the arguments of ``train``."""
        return self.behind_shields(self.train(params, x, y, rngs), rngs)

    def behind_shields(self, descents: Params, rngs: Sequence[Generator]) -> Params:
        """Return what leaves of the descents (n, ...) of n clients."""
        if not self.shields:
            return descents
        sent: list[Params] = [{name: rows[i] for name, rows in descents.items()} for i in range(len(rngs))]
        for shield in self.shields:
            sent = [shield(one, rng) for one, rng in zip(sent, rngs, strict=True)]
        return {name: torch.stack([one[name] for one in sent]) for name in descents}


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """``count`` shadow clients with ``public`` images, which train like ``client`` from the victims' shared model.

    Each has a private head of its own, where there are any, with every candidate and without.
    """

    victims: Victims
    client: Client
    public: Labelled
    count: int
    seed: int
    path: tuple[int, ...] = ()

    def without(self) -> Params:
        """Return what they send with public images alone: descents (count, ...)."""
        x, y = self._public()
        return self.client.behind_shields(self._trained(x, y), self._rngs("out"))

    def with_first(self, candidates: Labelled) -> Iterator[tuple[Labelled, Params]]:
        """Yield some candidates (q), and what all send with each of them instead of their first image: (q, count, ...).

        The gradient of a batch is the mean of its images' gradients, so those of the other images are computed once.
        """
        x, y = self._public()
        alone = self.victims.steps is None
        rest = self._trained(x[:, 1:], y[:, 1:]) if alone and self.victims.images > 1 else None
        chunk = max(1, NUMBERS // (self.count * sum(p.numel() for p in self.victims.params.values())))
        for start in range(0, len(candidates), chunk):
            some = candidates[start : start + chunk]
            own = [one.repeat_interleave(self.count, 0)[:, None] for one in (some.x.to(x), some.y.to(y))]
            if alone:
                whole = self._means(self._trained(*own), rest)
            else:
                kept = [one[:, 1:].repeat(len(some), *[1] * (one.dim() - 1)) for one in (x, y)]
                whole = self._trained(*(torch.cat(both, 1) for both in zip(own, kept, strict=True)))
            sent = self.client.behind_shields(
                whole, [rng for i in range(len(some)) for rng in self._rngs("in", start + i)]
            )
            yield some, {name: rows.view(len(some), self.count, *rows.shape[1:]) for name, rows in sent.items()}

    def _means(self, own: Params, rest: Params | None) -> Params:
        """Return the gradients (n, ...) of batches from those of one image (n, ...) and of the others (count, ...)."""
        if rest is None:
            return own
        share = 1 / self.victims.images
        each = {name: one.view(-1, self.count, *one.shape[1:]) for name, one in own.items()}
        return {name: (share * one + (1 - share) * rest[name]).flatten(0, 1) for name, one in each.items()}

    def _public(self) -> tuple[Tensor, Tensor]:
        """Return the public images and labels of every client: (count, b, ...), where the victims' tensors are."""
        each = [self._images(s) for s in range(self.count)]
        like = next(iter(self.victims.descents.values()))
        x, y = torch.stack([images.x for images in each]), torch.stack([images.y for images in each])
        return x.to(like), y.to(like.device)

    def _images(self, s: int) -> Labelled:
        """Return the public images of client ``s``, drawn at random."""
        rng = torch_rng(self.seed, "shadow", *self.path, "hand", s)
        return self.public[torch.randperm(len(self.public), generator=rng)[: self.victims.images]]

    def _trained(self, x: Tensor, y: Tensor) -> Params:
        """Return the descents (n, ...) of clients with these images, n a multiple of ``count``: client by client."""
        rngs = [rng for _ in range(len(x) // self.count) for rng in self._rngs("train")]
        return self.client.train(self.victims.params, x, y, rngs)

    def _rngs(self, *name: str | int) -> list[Generator]:
        """Return the randomness of every client for what has this name, from its beginning."""
        return [torch_rng(self.seed, "shadow", *self.path, *name, s) for s in range(self.count)]


def plain(victims: Victims) -> Client:
    """Return a client without a defence that trains as the victims do."""
    simulate = vmap(
        simulation(victims.model, multi_label=victims.multi_label, steps=victims.steps), in_dims=(None, 0, 0)
    )

    def train(params: Params, x: Tensor, y: Tensor, rngs: Sequence[Generator]) -> Params:
        descents: Params = simulate(params, x, as_targets(victims, y, x))
        return descents

    return Client(train=train)


def with_secret_head(victims: Victims, *, bits: int, alpha2: float, alpha1: float = 1.0, margin: float = 1.0) -> Client:
    """Return a client with a private head (SPN); the head and the codes of each client follow from its randomness.

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

    def train(params: Params, x: Tensor, y: Tensor, rngs: Sequence[Generator]) -> Params:
        targets = as_targets(victims, y, x)
        features = _features(victims, params, x.flatten(0, 1)).view(*x.shape[:2], -1)
        weight, bias, table = (torch.stack(parts).to(x) for parts in zip(*map(drawn, rngs), strict=True))
        codes = targets @ table
        below = (margin - (features @ weight.mT + bias[:, None]) * codes > 0).to(x)
        return scale(simulate(params, x, targets, -alpha2 / alpha1 * (below * codes) @ weight), alpha1)

    return Client(train=train)


def behind(client: Client, shield: Shield) -> Client:
    """Return the client whose update passes one more defence before it leaves."""
    return replace(client, shields=(*client.shields, shield))


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
