"""Matching: are two updates from one user? The papers' presets (gradient-leaks, 4.4; papers.md 2.3).

Each returns scores (q,), higher = more likely the same user, for pairs of updates whose left side is a prior update.
The strong preset is in :mod:`fedprint.attacks.matching.metric`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from fedprint.attacks.features import Updates, in_span, matrix
from fedprint.attacks.matching.pairs import balanced_pairs
from fedprint.types import FedprintError, Floats, Ints, Scores

WIDEST = 8192
"""Inputs of a Siamese network: wider layers enter as coordinates in the span of the prior updates.

The inner products with every prior update stay the same, and RMSProp on millions of weights takes minutes."""


@dataclass(frozen=True, kw_only=True)
class PairProblem:
    """Is each pair (q, 2) of rows from one user? Learn from ``fit`` rows with ``labels`` (p,) in [0, m).

    ``layers`` are the layers that the papers' presets read, None for all.
    """

    updates: Updates
    fit: Ints
    labels: Ints
    pairs: Ints
    options: int
    layers: tuple[str, ...] | None = None


def chance(problem: PairProblem, rng: torch.Generator) -> Scores:
    """``chance``: uniform random scores."""
    return torch.rand(len(problem.pairs), generator=rng, dtype=torch.float64).numpy()


def mlp_product(problem: PairProblem, rng: torch.Generator) -> Scores:
    """``mlp-product``: the log of ``max_u P[i = u] P[j = u]`` with the papers' re-identification network."""
    from fedprint.attacks.learner import MlpSettings
    from fedprint.attacks.reidentification.mlp import fit_mlp

    x = matrix(problem.updates, problem.layers)
    rows, positions = np.unique(problem.pairs, return_inverse=True)
    log_p = fit_mlp(x[problem.fit], problem.labels, x[rows], problem.options, MlpSettings(), rng)
    left, right = positions.reshape(problem.pairs.shape).T
    best: Scores = (log_p[left] + log_p[right]).max(1)
    return best


def siamese(problem: PairProblem, rng: torch.Generator) -> Scores:
    """``siamese``: one FC-128 layer per twin, shared weights."""
    return _siamese(problem, rng, depth=1)


def siamese_deep(problem: PairProblem, rng: torch.Generator) -> Scores:
    """``siamese-2``: two FC-128 layers per twin, the other possible reading of the paper."""
    return _siamese(problem, rng, depth=2)


def _siamese(problem: PairProblem, rng: torch.Generator, depth: int) -> Scores:
    """Train on 8192 balanced pairs of prior updates; a tenth of the rows is held out to stop early."""
    from fedprint.attacks.matching.towers import PairData, TowerSettings, fit_towers, score_pairs

    x = _inputs(problem)
    draw = numpy_like(rng)
    held, kept = _hold_out(problem, draw)
    pairs, same = balanced_pairs(problem.labels[kept], problem.labels[kept], 8192, draw, distinct=True)
    train = PairData(pairs=problem.fit[kept][pairs], same=same)
    pairs, same = balanced_pairs(problem.labels[kept], problem.labels[held], 1024, draw)
    test = PairData(pairs=np.stack([problem.fit[kept][pairs[:, 0]], problem.fit[held][pairs[:, 1]]], axis=1), same=same)
    module = fit_towers((x, x), train, test, TowerSettings(depth=depth), rng)
    return score_pairs(module, (x, x), problem.pairs)


def _inputs(problem: PairProblem) -> Floats:
    x = matrix(problem.updates, problem.layers)
    return in_span(x, problem.fit) if x.shape[1] > WIDEST else x


def _hold_out(problem: PairProblem, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return a tenth of the fit rows' positions, of users with two other updates left, and the rest."""
    order = rng.permutation(len(problem.fit))
    counts = np.bincount(problem.labels)
    able = order[counts[problem.labels[order]] >= 3]  # two others stay for a pair
    if not len(able):
        raise FedprintError("a Siamese network needs a user with three prior updates; record more rounds")
    held = able[: max(1, len(order) // 10)]
    return held, np.setdiff1d(order, held)


def numpy_like(rng: torch.Generator) -> np.random.Generator:
    """Return a numpy generator seeded from a torch one."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))


PRESETS: Mapping[str, Callable[[PairProblem, torch.Generator], Scores]] = {
    "chance": chance,
    "mlp-product": mlp_product,
    "siamese": siamese,
    "siamese-2": siamese_deep,
}
