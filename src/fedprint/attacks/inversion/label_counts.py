"""How often each label occurs, by the likelihood of the last layer's gradient under a known mask and noise (ours).

Row c of the mean gradient of b images, n_c of them of class c, is about ``(p_c - n_c / b) h``: p and h are the class
probabilities and the last layer's inputs, which the adversary estimates with random images. An entry that was not sent
is censored: it is smaller than the smallest one that was sent (Tobin 1958). Letters: v victims, m random images, C
classes, F inputs, z nodes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.victims import Victims
from fedprint.rng import torch_rng
from fedprint.types import Params

RANDOM_IMAGES = 16
"""Number of the adversary's random images, which show how much p and h differ between images."""

NODES = torch.linspace(-3, 3, 9, dtype=torch.float64)
"""Standard deviations of a batch's p from its mean; weighted by the normal density."""

ROUNDING = 1e-8
"""Variance of every entry in addition to noise and to differences between images."""


def likeliest_labels(victims: Victims, knowledge: Knowledge) -> Tensor:
    """Return labels (v, b) in rising order: counts of the highest posterior, labels of images drawn alike.

    The scores of a victim's rounds, each with independent noise and mask, add up. Updates of local steps count as the
    mean of their gradients. Inputs of the last layer may have either sign.
    """
    steps = 1 if victims.steps is None else len(victims.steps.batches)
    known = replace(knowledge, sigma=knowledge.sigma / steps)
    rounds = (victims.one_round(r) for r in range(victims.rounds))
    scores = torch.stack([_of_one_round(one, known, steps) for one in rounds]).sum(0)
    every = torch.arange(victims.images + 1).to(scores)
    return _highest(scores - torch.lgamma(every + 1))


def _of_one_round(victims: Victims, knowledge: Knowledge, steps: int) -> Tensor:
    """Return log likelihoods (v, C, b + 1) of each class occurring 0 to b times."""
    p, h = _estimated(victims)
    weight, bias = (victims.descents[f"head.{kind}"].double() / steps for kind in ("weight", "bias"))
    each = zip(weight, bias, p.expand(len(weight), -1, -1), h.expand(len(weight), -1, -1), strict=True)
    return torch.stack([_log_likelihoods(*one, victims.images, knowledge) for one in each])


def _log_likelihoods(weight: Tensor, bias: Tensor, p: Tensor, h: Tensor, images: int, knowledge: Knowledge) -> Tensor:
    """Return those (C, b + 1) of one victim: weight (C, F), bias (C,), p (m, C) and h (m, F) of random images.

    The bias is the weight of an input that is always 1.
    """
    rows, nodes = torch.cat([weight, bias[:, None]], 1), NODES.to(weight)
    inputs, spread = functional.pad(h.mean(0), (0, 1), value=1.0), functional.pad(h.var(0), (0, 1))
    least = torch.cat([_least(weight).expand(weight.shape[1]), _least(bias)[None]])
    mean, off = p.mean(0), (p.var(0) / images).sqrt()
    scores = []
    for count in range(images + 1):
        shares = mean + nodes[:, None] * off - count / images
        variance = (count * (1 - mean).square() + (images - count) * mean.square()) / images**2
        deviation = (knowledge.sigma**2 + variance[:, None] * spread + ROUNDING).sqrt()
        expected = shares[..., None] * inputs
        fit = _log_normal((rows - expected) / deviation) - deviation.log()
        if knowledge.masked:
            fit = torch.where(rows != 0, fit, _log_within(expected.abs(), least, deviation))
        scores.append((fit.sum(-1) + torch.log_softmax(_log_normal(nodes), 0)[:, None]).logsumexp(0))
    return torch.stack(scores, 1)


def _highest(scores: Tensor) -> Tensor:
    """Return labels (v, b) whose counts have the largest sum of ``scores`` (v, C, b + 1).

    One label at a time, the one with the largest gain: exact where the gain falls with every copy of a label.
    """
    gains = scores.diff(dim=2)
    counts, every, chosen = scores.new_zeros(scores.shape[:2], dtype=torch.long), torch.arange(len(scores)), []
    for _ in range(gains.shape[2]):
        label = gains.gather(2, counts[..., None])[..., 0].argmax(1)
        counts[every, label] += 1
        chosen.append(label)
    return torch.stack(chosen, 1).sort(1).values


def _estimated(victims: Victims) -> tuple[Tensor, Tensor]:
    """Return p (v, m, C) and h (v, m, F) of random images; v is 1 where the model is shared."""
    like = next(iter(victims.params.values()))
    x, outputs = _random_images(victims.shape).to(like), _Outputs(victims.model)

    def run(params: Params) -> tuple[Tensor, Tensor]:
        p_and_h: tuple[Tensor, Tensor] = functional_call(outputs, {f"model.{n}": t for n, t in params.items()}, (x,))
        return p_and_h

    each = {name: t[None] for name, t in victims.params.items()} if victims.shared else victims.params
    p, h = vmap(run)(each)
    return p.detach().double(), h.detach().double()


def _random_images(shape: tuple[int, int, int]) -> Tensor:
    """Return smooth random images (m, c, h, w), some darker and some brighter."""
    rng, (channels, height, width) = torch_rng(0, "own images"), shape
    coarse = 0.8 * torch.rand(RANDOM_IMAGES, channels, 4, 4, generator=rng) - 0.4
    level = 0.2 + 0.6 * torch.rand(RANDOM_IMAGES, 1, 1, 1, generator=rng)
    fine = functional.interpolate(coarse, size=(height, width), mode="bilinear", align_corners=True)
    return (level + fine).clamp(0, 1)


class _Outputs(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.model.features(x)  # type: ignore[operator]
        return self.model.head(features).softmax(-1), features  # type: ignore[operator]


def _least(sent: Tensor) -> Tensor:
    """Return the smallest absolute value () of the sent entries of a tensor."""
    return torch.where(sent != 0, sent.abs(), torch.inf).min()


def _log_normal(x: Tensor) -> Tensor:
    return -0.5 * (x.square() + math.log(2 * math.pi))


def _log_within(mean: Tensor, least: Tensor, deviation: Tensor) -> Tensor:
    """Return log P(|e| < least) of e normal around ``mean``, which is not negative."""
    below, under = (torch.special.log_ndtr((edge - mean) / deviation) for edge in (least, -least))
    inside: Tensor = below + torch.log1p(-(under - below).exp().clamp(max=1 - 1e-12))
    return inside
