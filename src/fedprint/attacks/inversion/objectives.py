"""How far a simulated gradient is from an observed one, and what is known of images: one problem each, for ``vmap``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedprint.types import Params

Distance = Literal["l2", "cosine"]
SMOOTH = 1e-4
"""Differences of pixels below this count by their squares in the total variation: it has derivatives everywhere."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What the adversary knows of the defence; nothing is the naive adversary.

    ``sigma``: standard deviation of the noise on each entry of the gradient. ``masked``: entries that are exactly zero
    were not sent (top-k), rather than sent as zeros. ``secret_head``: a private head behind the same features added its
    gradient to every layer but the public head (SPN); of its weights and codes nothing is known.
    """

    sigma: float = 0.0
    masked: bool = False
    secret_head: bool = False


NAIVE = Knowledge()
"""The adversary who knows of no defence."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is known of images. All weights zero: nothing.

    ``tv`` weighs the mean total variation beside the distance (Geiping et al. 2020, eq. 4). ``nats`` is the negative
    logarithm of an image's density per unit of total variation (pixels from 0 to 1), which counts as far as the noise
    is known: the most probable image under Gaussian noise. ``box`` weighs the mean square by which pixels leave [0, 1].
    """

    tv: float = 0.0
    nats: float = 0.0
    box: float = 0.0


def distance(kind: Distance, found: Params, observed: Params, *, masked: bool = False) -> Tensor:
    """Return how far ``found`` is from ``observed``, () and free of their scale.

    l2: ``|found - observed|^2 / |observed|^2`` over all entries (deep leakage); cosine: one minus the cosine of both
    read as single vectors (Geiping et al. 2020, eq. 4). ``masked``: of entries that were not sent it counts by how much
    they exceed the smallest that was, in the same tensor: had they, they would have been sent.
    """
    size = _dot(observed, observed)
    if masked:
        found = {name: _as_sent(found[name], tensor) for name, tensor in observed.items()}
    if kind == "l2":
        apart = {name: found[name] - tensor for name, tensor in observed.items()}
        return _dot(apart, apart) / size
    return 1 - _dot(found, observed) / (_dot(found, found) * size).clamp(min=1e-30).sqrt()


def _as_sent(found: Tensor, observed: Tensor) -> Tensor:
    sent = observed != 0
    least = torch.where(sent, observed.abs(), torch.inf).min()
    excess = found - found.clamp(-least, least)
    return torch.where(sent, found, excess)


def prior_cost(x: Tensor, prior: Prior, knowledge: Knowledge, observed: Params) -> Tensor:
    """Return what is added to the l2 distance for images x (b, c, h, w): ().

    Under noise of variance s the log density of an image is ``-|found - observed|^2 / 2s - nats * TV``; times
    ``-2s / |observed|^2`` it is the distance plus ``2 s nats TV / |observed|^2``.
    """
    cost = x.new_zeros(())
    if prior.box:
        cost = cost + prior.box * (torch.relu(-x) + torch.relu(x - 1)).square().mean()
    noise = 2 * knowledge.sigma**2 * prior.nats
    if prior.tv or noise:
        variation = total_variation(x)
        cost = cost + prior.tv * variation / x.numel() + noise * variation / _dot(observed, observed)
    return cost


def total_variation(x: Tensor) -> Tensor:
    """Return the sum of absolute differences between neighbouring pixels of images (..., h, w): ()."""
    steps = (x[..., 1:, :] - x[..., :-1, :], x[..., :, 1:] - x[..., :, :-1])
    return sum(((step.square() + SMOOTH**2).sqrt() - SMOOTH).sum() for step in steps)  # type: ignore[return-value]


def _dot(a: Params, b: Params) -> Tensor:
    return torch.stack([(a[name] * b[name]).sum() for name in b]).sum()
