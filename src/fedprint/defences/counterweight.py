"""``counter-aug``: background examples chosen to outweigh what is peculiar to a user (ours, not the papers').

To first order an update is the sum of its examples' gradients. What identifies a user is how this sum differs from the
population's. ``mm-aug`` adds one mode of the background: a large disturbance in a random direction, beside which the
user's own part remains. ``counter-aug`` spends its examples on the user's own deviation instead: it samples background
examples by importance, so that on average they bring the sum of deviations to zero. To always take the ones that bring
it closest (kernel herding; Welling 2009) is more exact, and loses what chance hides. The deviation is measured in
features that gradients are made of, and that need no model: what the targets are, what the inputs look like, and what
the inputs of each class look like.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor
from torch.nn import functional

from fedprint.defences.on_data import Augmentation, draw
from fedprint.types import Examples

SIDE = 7
"""Images are averaged down to this many pixels a side."""
WORDS = 400
"""Words that texts are described by: those whose share differs most between texts."""
CLASSES = 64
"""Up to so many classes, inputs are described class by class."""
RIDGE = 1e-3
"""Share of the candidates' total variance that is added in every direction before a deviation is cancelled along it."""


class CounterAug(Augmentation):
    """``counter-aug``: ``alpha * n`` background examples are added that balance the user's deviation from the others.

    Each device looks at ``candidates`` random background examples, so two devices with equal data add different ones.
    ``features`` is what is balanced: targets, inputs, or both. Each chosen example comes ``repeats`` times, as in
    ``repeat-aug``. By ``choice`` examples are sampled that cancel the deviation on average, or herding takes the best
    ones: then what is added is nearly a function of the user, and so a mark that an adversary can learn.
    """

    name: Literal["counter-aug"] = "counter-aug"
    candidates: int = Field(default=2000, ge=2)
    features: Literal["both", "targets", "inputs"] = "both"
    repeats: int = Field(default=1, ge=1)
    choice: Literal["sampling", "herding"] = "sampling"

    def choose(self, count: int, examples: Examples, background: Examples, every: Tensor, rng: Generator) -> Tensor:
        """Look at some and take those that balance the user's own."""
        drawn = draw(every, min(self.candidates, len(every)), rng)
        pool = {name: background[name][drawn] for name in ("x", "y")}
        own, other = describe(examples, pool, self.features)
        different = math.ceil(count / self.repeats)
        if self.choice == "sampling":
            chosen = tilted(own.sum(0) / count, other, different, rng)
        else:
            chosen = counterweights(own.sum(0), self.repeats * other, different)
        return drawn[chosen].repeat_interleave(self.repeats)[:count]


def counterweights(deviation: Tensor, candidates: Tensor, count: int) -> Tensor:
    """Return ``count`` positions, each the candidate (m, f) that brings the running sum closest to zero: (count,).

    The sum starts at ``deviation`` (f,). No candidate comes twice before all have come.
    """
    squares = candidates.square().sum(1)
    toward = candidates @ deviation
    free = torch.ones(len(candidates), dtype=torch.bool)
    chosen = []
    for _ in range(count):
        if not free.any():
            free[:] = True
        cost = (2 * toward + squares).masked_fill(~free, torch.inf)
        best = int(cost.argmin())
        free[best] = False
        toward += candidates @ candidates[best]
        chosen.append(best)
    return torch.tensor(chosen)


def tilted(deviation: Tensor, candidates: Tensor, count: int, rng: Generator) -> Tensor:
    """Draw ``count`` positions whose candidates (m, f), of mean 0, are ``-deviation`` (f,) on average: (count,).

    Weights are ``exp(-c . theta)``, of the tilted distributions the nearest to uniform for a mean; theta is found to
    first order, ``(C + ridge) theta = deviation`` with C the candidates' covariance. Without replacement if they last.
    """
    covariance = candidates.T @ candidates / len(candidates)
    covariance.diagonal().add_(RIDGE * covariance.trace().clamp(min=1e-12))
    theta = torch.linalg.solve(covariance, deviation)
    weights = torch.softmax(-(candidates @ theta), 0).clamp(min=1e-12)  # none is impossible
    return torch.multinomial(weights, count, replacement=count > len(weights), generator=rng)


def describe(examples: Examples, pool: Examples, features: str) -> tuple[Tensor, Tensor]:
    """Return deviations from the pool's mean, of the examples (n, f) and of the pool (m, f).

    Each group of features (targets, inputs, inputs by class) has the same total variance in the pool.
    """
    n = len(examples["y"])
    both = {name: torch.cat([examples[name].to("cpu"), pool[name].to(examples[name].dtype)]) for name in ("x", "y")}
    targets, inputs = _targets(both["y"]), _inputs(both["x"])
    groups = [targets] if features != "inputs" else []
    groups += [inputs] if features != "targets" else []
    if features == "both" and 1 < targets.shape[1] <= CLASSES:
        centred = inputs - inputs[n:].mean(0)
        groups.append((targets[:, :, None] * centred[:, None]).flatten(1))
    scaled = [_centred(group, n) for group in groups]
    whole = torch.cat(scaled, dim=1)
    return whole[:n], whole[n:]


def _centred(group: Tensor, n: int) -> Tensor:
    """Subtract the pool's mean (the rows from n on) and give its rows unit mean square."""
    centred = group - group[n:].mean(0)
    scaled: Tensor = centred / centred[n:].square().sum(1).mean().sqrt().clamp(min=1e-12)
    return scaled


def _targets(y: Tensor) -> Tensor:
    """Return classes as one-hot, several classes or a number as they are, words as counts: (n, f) float32."""
    if y.is_floating_point():
        return y.float().reshape(len(y), -1)
    return _word_counts(y) if y.dim() > 1 else functional.one_hot(torch.unique(y, return_inverse=True)[1]).float()


def _inputs(x: Tensor) -> Tensor:
    """Return images (n, c, h, w) averaged down, texts (n, length) as word counts: (n, f) float32."""
    if x.dim() == 2 and not x.is_floating_point():
        return _word_counts(x)
    small = functional.adaptive_avg_pool2d(x.float(), (SIDE, SIDE)) if x.dim() == 4 else x.float()
    return small.flatten(1)


def _word_counts(tokens: Tensor) -> Tensor:
    """Return counts of the :data:`WORDS` words that vary most between texts: (n, words).

    Neither padding (0) counts nor a target that is to be ignored (below 0).
    """
    counts = torch.zeros(len(tokens), int(tokens.max()) + 1)
    counts.scatter_add_(1, tokens.clamp(min=0), torch.ones(tokens.shape))
    counts[:, 0] = 0
    kept = counts.var(0).argsort(descending=True, stable=True)[:WORDS]
    return counts[:, kept]
