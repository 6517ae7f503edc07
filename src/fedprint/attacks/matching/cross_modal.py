"""Cross-modal matching: is an anonymous update from the writer of some texts (gradient-leaks v3, 4.3 and 6.1.1).

Both matchers learn from users of whom the adversary has updates and texts, and return scores (q,) for pairs of an
update (row) and a user (position in ``texts``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedprint.attacks.features import ROW_WISE, Block, Updates, in_span, matrix
from fedprint.attacks.matching.match import WIDEST, numpy_like
from fedprint.attacks.matching.metric import Gram, block_name, grams, taught_rows
from fedprint.attacks.matching.pairs import balanced_pairs
from fedprint.attacks.problem import Validation
from fedprint.attacks.reidentification.ridge import candidate_blocks
from fedprint.types import Doubles, FedprintError, Floats, Ints, Scores

PENALTIES = (0.3, 3.0, 30.0, 300.0)
DIMENSIONS = (8, 16, 32, 64)
ENSEMBLE = 40
"""The number of settings whose scores are averaged: with a few dozen users validation does not show which one is best.

On openmoji and albums (six divisions each) the mean of 40 has AP 73.3 and 70.6, the single best of validation 69.1 and
65.8, the towers 67.2 and 65.1.
"""


@dataclass(frozen=True, kw_only=True)
class CrossProblem:
    """Does each of the pairs (q, 2), a text user and an update row, belong together?

    ``texts`` (U, D) holds phi of every user. The matcher learns from ``fit`` rows with ``labels`` (p,), positions in
    ``texts``. ``layers`` are the layers that the towers read, None for all.
    """

    updates: Updates
    texts: Floats
    fit: Ints
    labels: Ints
    pairs: Ints
    layers: tuple[str, ...] | None = None


def two_towers(problem: CrossProblem, rng: torch.Generator, *, pairs: int = 10_000) -> Scores:
    """``cross-modal``: a FC-128 tower for each modality, trained on ``pairs`` balanced pairs of known users.

    A tenth of the users (at least two) is held out to stop early, because the questions too are about users whose
    pairs were not trained on.
    """
    from fedprint.attacks.matching.towers import PairData, TowerSettings, fit_towers, score_pairs

    x = matrix(problem.updates, problem.layers)
    sides = (problem.texts, in_span(x, problem.fit) if x.shape[1] > WIDEST else x)
    draw = numpy_like(rng)
    known = draw.permutation(np.unique(problem.labels))
    if len(known) < 4:
        raise FedprintError(f"cross-modal: updates and texts of {len(known)} users are too few to learn from; use four")
    held = known[: max(2, len(known) // 10)]
    test, train = (
        PairData(pairs=p, same=s)
        for p, s in (_draw(problem, users, n, draw) for users, n in ((held, 1000), (np.setdiff1d(known, held), pairs)))
    )
    module = fit_towers(sides, train, test, TowerSettings(), rng)
    return score_pairs(module, sides, problem.pairs)


def _draw(problem: CrossProblem, users: Ints, n: int, rng: np.random.Generator) -> tuple[Ints, NDArray[np.bool_]]:
    """Return balanced pairs (n, 2) of a text user and a fit row among some users."""
    rows = np.isin(problem.labels, users)
    pairs, same = balanced_pairs(users, problem.labels[rows], n, rng)
    return np.stack([users[pairs[:, 0]], problem.fit[rows][pairs[:, 1]]], axis=1), same


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """What validation chose: kernel block, ridge penalty, number of text dimensions; its AP on new users there."""

    block: Block
    penalty: float
    dimensions: int
    ap: float

    @property
    def layers(self) -> str:
        """Layers and transform for tables."""
        return block_name(self.block)


def predict_texts(gram: Gram, fit: Ints, targets: Doubles, penalty: float) -> Doubles:
    """Predict targets (p, D) of the fit rows, which must be anchors, for all updates (n, D): ridge in the dual."""
    columns = gram.columns(fit)
    cosines = gram.cosines[:, columns].astype(np.float64)
    to_mean = cosines.mean(1)
    k = cosines - to_mean[:, None] - to_mean[fit][None] + to_mean[fit].mean()
    inner = k[fit] + penalty * max(float(np.trace(k[fit])) / len(fit), 1e-12) * np.eye(len(fit))
    predicted: Doubles = k @ np.linalg.solve(inner, targets - targets.mean(0))
    return predicted


def bridge(gram: Gram, problem: CrossProblem, penalty: float, dimensions: int) -> Scores:
    """Predict the writer's text features from the update; return the cosine with those of the user.

    Text features are whitened principal components of the known users' phi, so that common words have no weight.
    """
    known = np.unique(problem.labels)
    phi = _whitened(problem.texts.astype(np.float64), known, dimensions)
    predicted = predict_texts(gram, problem.fit, phi[problem.labels], penalty)
    left, right = phi[problem.pairs[:, 0]], predicted[problem.pairs[:, 1]]
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    scores: Scores = (left * right).sum(1) / np.maximum(lengths, 1e-12)
    return scores


def _whitened(phi: Doubles, known: Ints, dimensions: int) -> Doubles:
    centred = phi - phi[known].mean(0)
    _, values, vectors = np.linalg.svd(centred[known], full_matrices=False)
    kept = min(dimensions, int((values > 1e-6 * values[0]).sum()))
    whitened: Doubles = centred @ vectors[:kept].T / values[:kept]
    return whitened


def choose_bridges(folds: Sequence[Validation], texts: Floats, rng: np.random.Generator) -> tuple[BridgeSettings, ...]:
    """Return the settings with the best AP on users that were not learned from, best first, on validation problems.

    The problems must be of known users only.
    """
    updates, anchors = folds[0].problem.updates, taught_rows(folds)
    trials = [trial for fold in folds for trial in _trials(fold, texts, rng)]
    tried = [
        BridgeSettings(
            block=block,
            penalty=penalty,
            dimensions=dimensions,
            ap=float(np.mean([_ap(gram, problem, same, penalty, dimensions) for problem, same in trials])),
        )
        for block, gram in grams(updates, anchors, candidate_blocks(updates, None, ROW_WISE))
        for penalty in PENALTIES
        for dimensions in DIMENSIONS
    ]
    return tuple(sorted(tried, key=lambda settings: -settings.ap)[:ENSEMBLE])


def bridges(problem: CrossProblem, chosen: Sequence[BridgeSettings]) -> Scores:
    """``cross-modal-strong``: the mean of the standardised scores (q,) of several bridges."""
    blocks = tuple(dict.fromkeys(settings.block for settings in chosen))
    total: Scores = np.zeros(len(problem.pairs))
    for block, gram in grams(problem.updates, problem.fit, blocks):
        for settings in chosen:
            if settings.block == block:
                scores = bridge(gram, problem, settings.penalty, settings.dimensions)
                total += (scores - scores.mean()) / max(float(scores.std()), 1e-12) / len(chosen)
    return total


def _trials(
    fold: Validation, texts: Floats, rng: np.random.Generator, parts: int = 3
) -> list[tuple[CrossProblem, NDArray[np.bool_]]]:
    """Learn from two thirds of the users and ask about the others, in turn."""
    problem = fold.problem
    users = rng.permutation(np.intersect1d(problem.labels, fold.answers))
    if len(users) < 2 * parts:
        raise FedprintError(f"cross-modal: {len(users)} users to learn from are too few; use {2 * parts}")
    trials = []
    for tested in (users[part::parts] for part in range(parts)):
        taught, asked = ~np.isin(problem.labels, tested), np.isin(fold.answers, tested)
        pairs, same = balanced_pairs(tested, fold.answers[asked], 1000, rng)
        rows = np.stack([tested[pairs[:, 0]], problem.ask[asked][pairs[:, 1]]], axis=1)
        small = CrossProblem(
            updates=problem.updates, texts=texts, fit=problem.fit[taught], labels=problem.labels[taught], pairs=rows
        )
        trials.append((small, same))
    return trials


def _ap(gram: Gram, problem: CrossProblem, same: NDArray[np.bool_], penalty: float, dimensions: int) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(same, bridge(gram, problem, penalty, dimensions)))
