"""Which users are recognised, and which properties of their data correlate with it (papers.md 2.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy.stats import norm, spearmanr

from fedprint.analyses.base import Analysis, Scene
from fedprint.analyses.exhibits.base import Labels, divergence, entropy, extremes, labels

REASONS: Mapping[str, str] = {
    "divergence": "Jensen-Shannon divergence (bits) of the user's labels from the population's",
    "entropy": "entropy (bits) of the user's labels",
    "examples": "number of private examples",
    "prior_examples": "number of prior examples",
    "drift": "Jensen-Shannon divergence (bits) of the private labels from the user's own prior",
    "updates": "number of anonymous updates",
}
"""What may explain a user's AP; keys of the exhibit's rows."""


class Recognisable(Analysis):
    """``recognisable``: the AP of every user and the bias of its labels.

    The exhibit has ``users`` (``user_id``, ``ap`` and a number for each of :data:`REASONS`), ``reasons`` (their
    ``meaning`` and Spearman's ``correlation`` with the AP, with ``lo`` and ``hi`` at 95 % and ``p``; None where a
    column is constant), and ``most`` and ``least``: the ``shown`` users at either end (ties by id) with ``top``, the
    labels that set them apart (share times log ratio): ``label``, its ``share`` of theirs and of the ``population``'s.
    """

    name: Literal["recognisable"] = "recognisable"
    shown: int = Field(default=5, ge=1)
    top: int = Field(default=5, ge=1)

    def exhibit(self, scene: Scene) -> Mapping[str, Any] | None:
        """Return users and reasons; None where no user has an AP."""
        ap = {user: value for user, value in scene.ap.items() if np.isfinite(value)}
        if not ap:
            return None
        private = labels(scene, scene.private)
        rows = [
            {"user_id": user, "ap": value, **why}
            for (user, value), why in zip(ap.items(), _why(scene, ap), strict=True)
        ]
        known = [row["ap"] for row in rows]
        reasons = {
            name: {"meaning": meaning, **correlation([row[name] for row in rows], known)}
            for name, meaning in REASONS.items()
        }
        ends = {
            end: [{"user_id": user, "ap": ap[user], "top": self._top(private, user)} for user in users]
            for end, users in extremes(ap, self.shown).items()
        }
        return {"users": rows, "reasons": reasons, **ends}

    def _top(self, known: Labels, user: int) -> list[dict[str, Any]]:
        shares, population = known.shares(user), known.population
        gain = shares * np.log(np.maximum(shares, 1e-12) / np.maximum(population, 1e-12))
        best = [i for i in np.argsort(-gain, kind="stable")[: self.top].tolist() if gain[i] > 0]
        return [{"label": known.names[i], "share": float(shares[i]), "population": float(population[i])} for i in best]


def _why(scene: Scene, ap: Mapping[int, float]) -> list[dict[str, float]]:
    """Return the numbers of :data:`REASONS` for each user of ``ap``."""
    private, prior = labels(scene, scene.private), labels(scene, scene.prior)
    population = private.population
    prior_examples, examples = (
        {u.user_id: len(u.examples["y"]) for u in users} for users in (scene.prior, scene.private)
    )
    senders = scene.owner[(scene.store.index["role"] == "anonymous").to_numpy()]
    return [
        {
            "divergence": divergence(private.shares(user), population),
            "entropy": entropy(private.shares(user)),
            "examples": examples[user],
            "prior_examples": prior_examples[user],
            "drift": divergence(private.shares(user), prior.shares(user)),
            "updates": int((senders == user).sum()),
        }
        for user in ap
    ]


def correlation(x: Sequence[float], y: Sequence[float]) -> dict[str, float | None]:
    """Return Spearman's ``correlation`` of x (n,) and y (n,) with its interval (Bonett and Wright) and p-value."""
    if len(x) < 5 or len(set(x)) < 2 or len(set(y)) < 2:
        return {"correlation": None, "lo": None, "hi": None, "p": None}
    rho, p = (float(value) for value in spearmanr(x, y))
    centre = np.arctanh(np.clip(rho, -0.999999, 0.999999))
    half = norm.ppf(0.975) * np.sqrt((1 + rho**2 / 2) / (len(x) - 3))
    return {"correlation": rho, "lo": float(np.tanh(centre - half)), "hi": float(np.tanh(centre + half)), "p": p}
