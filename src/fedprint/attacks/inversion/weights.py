"""How much the image prior weighs where the noise is known: from heavy to light, until what is left may be noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedprint.attacks.inversion.matching import GradientMatching, Reconstruction
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.search import objective_at
from fedprint.attacks.inversion.victims import Victims

WEIGHTS = (15.0, 5.0, 2.0, 1.0)
"""Nats per unit of total variation, each search from where the one before ended: heavy priors lead the way."""


def adaptive(attack: GradientMatching, nats: float | None = None) -> GradientMatching:
    """Return ``attack`` with the image prior that pays once the noise or the mask is known (``Knowledge``).

    Without ``nats`` it is that for a mask or a secret head, set on eight CIFAR-10 training images, at sigma = .01 and
    for the top 30 % of every layer. With ``nats`` per unit of total variation it is that for noise alone, where the
    right weight depends on sigma.
    """
    if nats is not None:
        return attack.model_copy(update={"nats": nats, "box": 1.0})
    return attack.model_copy(update={"nats": 2.0, "box": 1.0, "tv": max(attack.tv, 1e-5)})


def from_heavy_to_light(
    attack: GradientMatching, victims: Victims, knowledge: Knowledge, *, seed: int
) -> Reconstruction:
    """Return what the heaviest prior finds that the noise does not speak against, else the lightest.

    All victims have the same: their :func:`excess` together is at most one standard deviation. Of one alone the energy
    of the noise says too little. Every weight gets half of the evaluations, and those of all weights count. The noise
    has to be known, on all entries, and the distance to be l2.
    """
    found: Reconstruction | None = None
    for nats in WEIGHTS:
        tactic = adaptive(attack, nats).model_copy(update={"evaluations": max(attack.evaluations // 2, 2)})
        found = tactic.run(victims, knowledge, seed=seed, begin=found)
        if float(excess(tactic, victims, knowledge, found).sum()) <= len(victims) ** 0.5:
            break
    assert found is not None
    return found


def excess(attack: GradientMatching, victims: Victims, knowledge: Knowledge, found: Reconstruction) -> Tensor:
    """Return by how many standard deviations (v,) of the noise's energy the search left more than noise.

    At true images the squares that are left, over the variance, have as mean the number of entries and twice it as
    variance. A search takes up a part of the noise: one degree of freedom for each nat that its prior costs, if the
    weight of the prior is right (evidence framework; MacKay 1992, section 4, for a prior that is linear in its weight).
    """
    plain = attack.model_copy(update={"tv": 0.0, "nats": 0.0, "box": 0.0})
    misfit = objective_at(plain, victims, knowledge, found.raw, found.targets)
    squares = torch.stack([d.flatten(1).square().sum(1) for d in victims.descents.values()]).sum(0)
    entries = sum(d[0].numel() for d in victims.descents.values())
    energy = squares / knowledge.sigma**2
    taken = (found.values - misfit) * energy / 2
    left: Tensor = (misfit * energy + taken - entries) / math.sqrt(2 * entries)
    return left
