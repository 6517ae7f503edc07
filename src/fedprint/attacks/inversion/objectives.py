"""The distance of a simulated gradient from an observed one, and an image prior: one problem each, for ``vmap``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedprint.types import Params

Distance = Literal["l2", "cosine"]
SMOOTH = 1e-4
"""Differences of pixels below this count by their squares in the total variation: it has derivatives everywhere."""
LEAST_COSINE = 0.1
"""Least assumed cosine of the true images' gradient with what was sent, however large the noise."""


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What the adversary knows of the defence; the defaults are the naive adversary.

    ``sigma``: standard deviation of the noise on each entry of the gradient. ``masked``: entries that are exactly zero
    were not sent (top-k), rather than sent as zeros. ``secret_head``: a private head behind the same features added its
    gradient to every layer but the public head (SPN); of its weights and codes nothing is known.
    """

    sigma: float = 0.0
    masked: bool = False
    secret_head: bool = False


NAIVE = Knowledge()
"""The naive adversary's knowledge: no defence."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The image prior; with all weights 0 there is none.

    ``tv`` weighs the mean total variation beside the distance (Geiping et al. 2020, eq. 4). ``nats`` is the negative
    logarithm of an image's density per unit of total variation (pixels from 0 to 1), which is used where the noise is
    known, and gives the most probable image under Gaussian noise. ``box`` weighs the mean square by which pixels leave
    [0, 1].
    """

    tv: float = 0.0
    nats: float = 0.0
    box: float = 0.0


def distance(kind: Distance, simulated: Params, observed: Params, *, masked: bool = False) -> Tensor:
    """Return the distance () of ``simulated`` from ``observed``, independent of the scale of ``observed``.

    l2: ``|simulated - observed|^2 / |observed|^2`` over all entries (deep leakage); cosine: one minus the cosine of
    both as single vectors (Geiping et al. 2020, eq. 4). ``masked``: an entry that was not sent counts by how much it
    exceeds the smallest sent entry of its tensor, because a larger entry would have been sent.
    """
    size = _dot(observed, observed)
    if masked:
        simulated = {name: _as_sent(simulated[name], tensor) for name, tensor in observed.items()}
    if kind == "l2":
        apart = {name: simulated[name] - tensor for name, tensor in observed.items()}
        return _dot(apart, apart) / size
    return 1 - _dot(simulated, observed) / (_dot(simulated, simulated) * size).clamp(min=1e-30).sqrt()


def _as_sent(simulated: Tensor, observed: Tensor) -> Tensor:
    sent = observed != 0
    least = torch.where(sent, observed.abs(), torch.inf).min()
    excess = simulated - simulated.clamp(-least, least)
    return torch.where(sent, simulated, excess)


def prior_cost(x: Tensor, prior: Prior, knowledge: Knowledge, observed: Params, kind: Distance = "l2") -> Tensor:
    """Return the cost () of images x (b, c, h, w) to add to the distance of this ``kind``."""
    cost = x.new_zeros(())
    if prior.box:
        cost = cost + prior.box * (torch.relu(-x) + torch.relu(x - 1)).square().mean()
    noisy = bool(knowledge.sigma and prior.nats)
    if prior.tv or noisy:
        variation = total_variation(x)
        cost = cost + prior.tv * variation / x.numel()
        if noisy:
            cost = cost + prior.nats * variation * nat(kind, knowledge, observed)
    return cost


def nat(kind: Distance, knowledge: Knowledge, observed: Params) -> Tensor:
    """Return the distance () that corresponds to one nat under the known noise.

    The log likelihood is ``-|simulated - observed|^2 / 2s`` for noise of variance s, so that a nat of the l2 distance
    is ``2s / |observed|^2``. With the best length of ``simulated`` the log likelihood is
    ``-|observed|^2 (1 - cosine^2) / 2s``, and a nat of the cosine distance is ``s / (|observed|^2 cosine)``, at the
    cosine that the true images are expected to have.
    """
    size, variance = _dot(observed, observed), knowledge.sigma**2
    if kind == "l2":
        return 2 * variance / size
    sent = torch.stack(
        [(t != 0).to(t).sum() if knowledge.masked else t.new_tensor(t.numel()) for t in observed.values()]
    )
    cosine = (1 - variance * sent.sum() / size).clamp(min=LEAST_COSINE**2).sqrt()
    return variance / (size * cosine)


def total_variation(x: Tensor) -> Tensor:
    """Return the sum of absolute differences between neighbouring pixels of images (..., h, w): ()."""
    steps = (x[..., 1:, :] - x[..., :-1, :], x[..., :, 1:] - x[..., :, :-1])
    return sum(((step.square() + SMOOTH**2).sqrt() - SMOOTH).sum() for step in steps)  # type: ignore[return-value]


def _dot(a: Params, b: Params) -> Tensor:
    return torch.stack([(a[name] * b[name]).sum() for name in b]).sum()
