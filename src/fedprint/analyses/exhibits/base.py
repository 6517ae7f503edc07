"""Shared by exhibits: raw examples as points, labels as histograms, and the most and least recognisable users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedprint.analyses.base import Scene
from fedprint.data.dataset import TEXT_TASKS
from fedprint.rng import torch_rng
from fedprint.types import Doubles, Ints, User


def point_kind(scene: Scene) -> str:
    """Return in words the features of :func:`points`."""
    if scene.features is not None:
        return "activations of the final model's penultimate layer"
    return "token counts" if scene.task in TEXT_TASKS else "pixels"


def points(scene: Scene, user: User, most: int) -> Doubles:
    """Return at most ``most`` random examples of a user as L2-normalised features (n, f)."""
    n = len(user.examples["y"])
    drawn = torch.randperm(n, generator=torch_rng(scene.seed, "points", user.user_id))[:most].sort().values
    some = User(user_id=user.user_id, examples={name: column[drawn] for name, column in user.examples.items()})
    raw = np.asarray(_features(scene)(some), dtype=np.float64)
    normalised: Doubles = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-12)
    return normalised


def _features(scene: Scene) -> Callable[[User], NDArray[np.floating]]:
    if scene.features is not None:
        return scene.features
    if scene.task in TEXT_TASKS:
        return lambda user: _token_counts(user.examples["x"].numpy(), len(scene.class_names))
    return lambda user: user.examples["x"].float().flatten(1).numpy()


def _token_counts(x: Ints, vocabulary: int) -> Doubles:
    """Return how often each token occurs in each text (n, vocabulary), padding aside."""
    counts = np.zeros((len(x), vocabulary))
    np.add.at(counts, (np.repeat(np.arange(len(x)), x.shape[1]), x.ravel()), 1.0)
    counts[:, 0] = 0.0
    return counts


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Label counts: ``counts`` maps a user to (c,), ``names`` (c,) names the classes (words, ratings)."""

    counts: Mapping[int, Doubles]
    names: tuple[str, ...]

    def shares(self, user_id: int) -> Doubles:
        """Return a user's distribution over the classes (c,)."""
        return _normalised(self.counts[user_id])

    @property
    def population(self) -> Doubles:
        """The mean of the users' distributions (c,): each user counts once."""
        shares: Doubles = np.mean([self.shares(user_id) for user_id in self.counts], axis=0)
        return shares


def labels(scene: Scene, users: tuple[User, ...]) -> Labels:
    """Count the users' labels: classes, next words of a language model, ratings of a regression (all that occur)."""
    if scene.task == "regression":
        ratings = np.unique(np.concatenate([user.examples["y"].numpy() for user in (*scene.private, *scene.prior)]))
        classes = {user.user_id: np.searchsorted(ratings, user.examples["y"].numpy()) for user in users}
        names = tuple(f"{rating:g}" for rating in ratings)
        return Labels(counts={user: _count(y, len(names)) for user, y in classes.items()}, names=names)
    counts = {user.user_id: _class_counts(user.examples["y"].numpy(), len(scene.class_names)) for user in users}
    return Labels(counts=counts, names=scene.class_names)


def _class_counts(y: NDArray[Any], classes: int) -> Doubles:
    if np.issubdtype(y.dtype, np.floating):  # multi-hot
        counts: Doubles = y.sum(0, dtype=np.float64)
        return counts
    return _count(y[y >= 0].ravel(), classes)


def _count(values: Ints, classes: int) -> Doubles:
    return np.bincount(values, minlength=classes).astype(np.float64)


def _normalised(counts: Doubles) -> Doubles:
    shares: Doubles = counts / max(float(counts.sum()), 1e-12)
    return shares


def entropy(p: Doubles) -> float:
    """Return the entropy of a distribution (c,) in bits."""
    kept = p[p > 0]
    return float(-(kept * np.log2(kept)).sum())


def divergence(p: Doubles, q: Doubles) -> float:
    """Return the Jensen-Shannon divergence of two distributions (c,) in bits: 0 equal, 1 disjoint."""
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


def extremes(ap: Mapping[int, float], count: int) -> dict[str, list[int]]:
    """Return the ``count`` users with the highest AP, best first, and with the lowest, worst first; disjoint."""
    order = sorted((user for user in ap if np.isfinite(ap[user])), key=lambda user: (-ap[user], user))
    half = min(count, len(order) // 2)
    return {"most": order[:half], "least": order[::-1][:half]}
