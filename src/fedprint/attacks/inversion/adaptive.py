"""The adaptive adversary: it tries several tactics for the known defence, and keeps the result that explains most.

The naive adversary, which knows of no defence, is ``attack.run(victims, seed=...)``. Both get only :class:`Victims`.
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
"""Evaluations to fit the push of a private head with which an image explains best what was sent."""


def tactics(attack: GradientMatching, knowledge: Knowledge, images: int = 1) -> Mapping[str, GradientMatching]:
    """Return the tactics of an adversary with this knowledge on gradients of ``images``, by name; the last one judges.

    naive ignores the defence; it is the only tactic where nothing is known. prior has the weights for known noise or a
    known mask (weights.py). head matches the public head alone, which a private head does not change. push matches all
    layers, with the push of the private head on the features as unknown: b F more variables. The gradient of a single
    image determines them, gradients of several images do not; so these get a weak image prior.
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

    Where the adversary knows of noise only, the tactics are weights of the prior, chosen by the energy of the noise
    (weights.py). ``values`` are comparable costs (:func:`unexplained`); ``evaluations`` count all tactics; the
    trajectory is that of the chosen one.
    """
    tried = tactics(attack, knowledge, victims.images)
    judge = list(tried.values())[-1]
    if attack.distance == "l2" and knowledge == Knowledge(sigma=knowledge.sigma) != NAIVE:
        result = from_heavy_to_light(attack, victims, knowledge, seed=seed)
        return replace(result, values=unexplained(judge, victims, knowledge, result))
    results = []
    for name, tactic in tried.items():
        result = tactic.run(victims, NAIVE if name == "naive" else knowledge, seed=seed)
        results.append(replace(result, values=unexplained(judge, victims, knowledge, result)))
    return reduce(better, results)


def unexplained(attack: GradientMatching, victims: Victims, knowledge: Knowledge, result: Reconstruction) -> Tensor:
    """Return the objective (v,) of ``attack`` at the reconstructed images and labels: the unexplained part.

    The images are cut to [0, 1]. Where the attack fits a push, it is fitted to them first, because the part of the
    objective that a private head can explain must not count against the images.
    """
    if attack.secret != "fit":
        return objective_at(attack, victims, knowledge, result.images, result.targets)
    costs = []
    for index in torch.split(torch.arange(len(victims)), attack.block):
        images, targets = (part[index.to(part.device)] for part in (result.images, result.targets))
        search = Search(attack, victims, index, knowledge, targets)
        costs.append(_fitted(search, search.around(images.to(search.like), targets.to(search.like))))
    return torch.cat(costs)


def _fitted(search: Search, points: Tensor) -> Tensor:
    """Return the lowest values (k,) over the push, with the other variables of ``points`` (k, d) fixed."""
    fixed = points[:, : search.fixed]

    def of_push(push: Tensor, problems: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = search(torch.cat([fixed[problems], push], 1), problems)
        return values, gradients[:, search.fixed :]

    limits = Limits(evaluations=FITTING, progress=1e-3)
    return Lbfgs().minimise(of_push, points[:, search.fixed :], limits).values


def better(a: Reconstruction, b: Reconstruction) -> Reconstruction:
    """Return ``b`` for the victims of which it explains more, else ``a``."""
    return either(a, b, b.values < a.values)
