"""``counter-aug``: adds background examples that cancel a user's deviation from the population (not from the papers).

To first order an update is the sum of its examples' gradients. A user is identified by how this sum differs from the
population's. ``mm-aug`` adds one mode of the background: a large disturbance in a random direction, which leaves the
user's part as it is. ``counter-aug`` reduces the user's part instead: it samples background examples with weights
such that the sum of all deviations is zero on average. Taking the examples that bring the sum closest to zero (kernel
herding; Welling 2009) would be more exact, but less random, and so hide less. The deviation is measured in features
that determine gradients and need no model: the targets, the inputs, and the inputs of each class.
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
"""Number of words whose counts describe a text: those that vary most between texts."""
CLASSES = 64
"""Up to this number of classes, inputs are also described class by class."""
RIDGE = 1e-3
"""Share of the candidates' total variance that is added to the diagonal of their covariance."""


class CounterAug(Augmentation):
    """``counter-aug``: ``alpha * n`` background examples are added that balance the user's deviation from the others.

    Each device looks at ``candidates`` random background examples, so two devices with equal data add different ones.
    ``features`` is what is balanced: targets, inputs, or both. Each chosen example is added ``repeats`` times, as in
    ``repeat-aug``. ``choice`` sampling draws examples that cancel the deviation on average. herding takes the best
    ones: what is added is then nearly a function of the user, which an adversary can learn.
    """

    name: Literal["counter-aug"] = "counter-aug"
    candidates: int = Field(default=2000, ge=2)
    features: Literal["both", "targets", "inputs"] = "both"
    repeats: int = Field(default=1, ge=1)
    choice: Literal["sampling", "herding"] = "sampling"

    def choose(self, count: int, examples: Examples, background: Examples, every: Tensor, rng: Generator) -> Tensor:
        """Choose among random candidates those that balance the user's deviation."""
        drawn = draw(every, min(self.candidates, len(every)), rng)
        pool = {name: background[name][drawn] for name in ("x", "y")}
        user, others = describe(examples, pool, self.features)
        different = math.ceil(count / self.repeats)
        if self.choice == "sampling":
            chosen = sample_tilted(user.sum(0) / count, others, different, rng)
        else:
            chosen = counterweights(user.sum(0), self.repeats * others, different)
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


def sample_tilted(deviation: Tensor, candidates: Tensor, count: int, rng: Generator) -> Tensor:
    """Draw ``count`` of the candidates (m, f), of mean 0, so that their mean is about ``-deviation`` (f,): (count,).

    Returns positions. A candidate c has weight ``exp(-c . theta)``: of all distributions with this mean the exponential
    tilt is nearest to uniform. theta solves ``(C + ridge) theta = deviation``, with C the candidates' covariance, which
    is exact to first order. Draws are without replacement if there are enough candidates.
    """
    covariance = candidates.T @ candidates / len(candidates)
    covariance.diagonal().add_(RIDGE * covariance.trace().clamp(min=1e-12))
    theta = torch.linalg.solve(covariance, deviation)
    weights = torch.softmax(-(candidates @ theta), 0).clamp(min=1e-12)  # every candidate stays possible
    return torch.multinomial(weights, count, replacement=count > len(weights), generator=rng)


def describe(examples: Examples, pool: Examples, features: str) -> tuple[Tensor, Tensor]:
    """Return the deviations of the examples (n, f) and of the pool (m, f) from the pool's mean.

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

    Padding (0) and ignored targets (below 0) do not count.
    """
    counts = torch.zeros(len(tokens), int(tokens.max()) + 1)
    counts.scatter_add_(1, tokens.clamp(min=0), torch.ones(tokens.shape))
    counts[:, 0] = 0
    kept = counts.var(0).argsort(descending=True, stable=True)[:WORDS]
    return counts[:, kept]
