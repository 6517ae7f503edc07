"""The adversary who knows the defence: it tries what fits, and keeps what explains best what was sent.

Naive is ``attack.run(victims, seed=...)``, which knows of no defence. Both take nothing but :class:`Victims`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedprint.attacks.inversion.lbfgs import Lbfgs
from fedprint.attacks.inversion.matching import GradientMatching, Reconstruction
from fedprint.attacks.inversion.minimise import Limits
from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.presets import adaptive
from fedprint.attacks.inversion.search import Search
from fedprint.attacks.inversion.victims import Victims

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

    ``values`` are the costs by which they were compared (:func:`unexplained`); ``evaluations`` count all tactics; the
    trajectory is that of the last.
    """
    tried = tactics(attack, knowledge, victims.images)
    judge = list(tried.values())[-1]
    found: Reconstruction | None = None
    for name, tactic in tried.items():
        result = tactic.run(victims, NAIVE if name == "naive" else knowledge, seed=seed)
        result = replace(result, values=unexplained(judge, victims, knowledge, result))
        found = result if found is None else better(found, result)
    assert found is not None
    return found


def unexplained(attack: GradientMatching, victims: Victims, knowledge: Knowledge, found: Reconstruction) -> Tensor:
    """Return the objective (v,) of ``attack`` at the images and labels that were found: what stays unexplained.

    Where the attack fits a push, it is fitted to the images first: the part of the objective that a private head can
    take on itself must not count against them.
    """
    costs = []
    for index in torch.split(torch.arange(len(victims)), attack.block):
        search = Search(attack, victims, index, knowledge)
        images, targets = (part[index.to(part.device)].to(search.like) for part in (found.images, found.targets))
        points = search.around(images, targets)
        if attack.secret == "fit":
            costs.append(_fitted(search, points))
        else:
            costs.append(search(points, torch.arange(len(index), device=points.device))[0])
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
    lower = b.values < a.values

    def either(name: str) -> Tensor:
        left, right = getattr(a, name), getattr(b, name)
        return torch.where(lower.reshape(-1, *[1] * (left.dim() - 1)), right, left)

    return Reconstruction(
        images=either("images"),
        raw=either("raw"),
        targets=either("targets"),
        values=either("values"),
        evaluations=a.evaluations + b.evaluations,
        trajectory=b.trajectory,
    )
