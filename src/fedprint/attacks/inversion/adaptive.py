"""The adversary who knows the defence: it tries what fits, and keeps what explains best what was sent.

Naive is ``attack.run(victims, seed=...)``, which knows of no defence. Both take nothing but :class:`Victims`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from fedprint.attacks.inversion.matching import GradientMatching, Reconstruction, either
from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.optimisers.lbfgs import Lbfgs
from fedprint.attacks.inversion.optimisers.minimise import Limits
from fedprint.attacks.inversion.search import Search, objective_at
from fedprint.attacks.inversion.victims import Victims
from fedprint.attacks.inversion.weights import adaptive, from_heavy_to_light

FITTING = 60
"""Evaluations for the push that a private head would have to give so that an image explains what was sent."""


def tactics(attack: GradientMatching, knowledge: Knowledge, images: int = 1) -> Mapping[str, GradientMatching]:
    """Return what an adversary of this knowledge tries on gradients of so many ``images``, by name; the last judges.

    naive knows of nothing, and is all where nothing is known. prior has the weights for known noise or a known mask
    (presets.py). head matches the public head alone, which a private one leaves untouched. push matches all layers,
    with the push of the private head on the features as unknown: b F more variables, which a single image's gradient
    determines and those of many do not, so that these get a little of the prior.
    """
    if knowledge == NAIVE:
        return {"naive": attack}
    known = adaptive(attack) if knowledge.sigma or knowledge.masked else attack
    if not knowledge.secret_head:
        return {"naive": attack, "prior": known}
    quiet = known.model_copy(update={"tv": max(known.tv, 1e-5), "box": max(known.box, 1.0)})
    pushed = known if images == 1 else quiet
    return {
        "naive": attack,
        "head": quiet.model_copy(update={"secret": "leave-out"}),
        "push": pushed.model_copy(update={"secret": "fit"}),
    }


def reconstruct(attack: GradientMatching, victims: Victims, knowledge: Knowledge, *, seed: int) -> Reconstruction:
    """Reconstruct with every tactic and return, for each victim, the result that explains best what it sent.

    Where noise is all that is known, the tactics are weights of the prior, chosen by the energy of the noise
    (weights.py). ``values`` are costs that can be compared (:func:`unexplained`); ``evaluations`` count all tactics;
    the trajectory is that of the chosen one.
    """
    tried = tactics(attack, knowledge, victims.images)
    judge = list(tried.values())[-1]
    if attack.distance == "l2" and knowledge == Knowledge(sigma=knowledge.sigma) != NAIVE:
        found = from_heavy_to_light(attack, victims, knowledge, seed=seed)
        return replace(found, values=unexplained(judge, victims, knowledge, found))
    results = []
    for name, tactic in tried.items():
        result = tactic.run(victims, NAIVE if name == "naive" else knowledge, seed=seed)
        results.append(replace(result, values=unexplained(judge, victims, knowledge, result)))
    return reduce(better, results)


def unexplained(attack: GradientMatching, victims: Victims, knowledge: Knowledge, found: Reconstruction) -> Tensor:
    """Return the objective (v,) of ``attack`` at the images and labels that were found: what stays unexplained.

    Images are judged as they are handed over, cut to [0, 1]. Where the attack fits a push, it is fitted to them first:
    the part of the objective that a private head can take on itself must not count against them.
    """
    if attack.secret != "fit":
        return objective_at(attack, victims, knowledge, found.images, found.targets)
    costs = []
    for index in torch.split(torch.arange(len(victims)), attack.block):
        images, targets = (part[index.to(part.device)] for part in (found.images, found.targets))
        search = Search(attack, victims, index, knowledge, targets)
        costs.append(_fitted(search, search.around(images.to(search.like), targets.to(search.like))))
    return torch.cat(costs)


def _fitted(search: Search, points: Tensor) -> Tensor:
    """Return the lowest values (k,) over the push, with all else of ``points`` (k, d) held."""
    held = points[:, : search.fixed]

    def of_push(push: Tensor, problems: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = search(torch.cat([held[problems], push], 1), problems)
        return values, gradients[:, search.fixed :]

    limits = Limits(evaluations=FITTING, progress=1e-3)
    return Lbfgs().minimise(of_push, points[:, search.fixed :], limits).values


def better(a: Reconstruction, b: Reconstruction) -> Reconstruction:
    """Return ``b`` for the victims where it leaves less unexplained, else ``a``."""
    return either(a, b, b.values < a.values)
