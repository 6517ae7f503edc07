"""Attacks on what a server learns about a sender without reading the update (no paper has them).

``count``: the number of examples that a device names, its weight in the mean. ``norm``: the length of its update.
``participation``: in which rounds a device took part. Halves of one prior have equal counts and one history, so shadow
validation flatters these attacks: none of them is ever selected, but the strongest attack of a table may be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy.special import log_softmax

from fedprint.attacks.choices import COUNT_SPREAD, NORM_SPREAD
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.reidentify import best_temperature, log_loss
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Settings, Workspace
from fedprint.component import Component
from fedprint.store.sent import Sent
from fedprint.types import Doubles, FedprintError, Ints, Scores

WEIGHTS = (1.0, 0.5, 0.25, 0.0)
"""Powers of the likelihood of a norm beside what the update itself tells: the two are not independent."""


class SideChannel(Component):
    """An attack without settings; ``symmetric``: exchanged labels exchange its columns."""

    symmetric: ClassVar[bool] = True
    selectable: ClassVar[bool] = False
    name: str

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """No settings to choose."""
        return {}


class Count(SideChannel):
    """``count``: the user whose known devices name about as many examples."""

    name: Literal["count"] = "count"

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Log-likelihood of the logarithm of the count."""
        return likelihood(np.log(np.maximum(_sent(problem).examples, 1)), problem, COUNT_SPREAD)


class Norm(SideChannel):
    """``norm``: the user whose known devices send updates of about this length, compared with others of the round."""

    name: Literal["norm"] = "norm"

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """How far a user's asked updates lie from the mean of the known ones, which are of other data: an rms."""
        far = []
        for validation in validations:
            lengths, problem = self._lengths(validation.problem, work), validation.problem
            means, known = user_means(lengths[:, None], problem)
            away = lengths[problem.ask] - means[validation.answers, 0]
            far.append(away[known[validation.answers]])
        return {"norm_spread": float(np.sqrt(np.mean(np.concatenate(far) ** 2)))}

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Log-likelihood of the logarithm of the norm, less its mean over the round's updates."""
        return likelihood(self._lengths(problem, work), problem, max(NORM_SPREAD, settings.get("norm_spread", 0.0)))

    @staticmethod
    def _lengths(problem: Problem, work: Workspace) -> Doubles:
        lengths, rounds = np.log(work.norms(problem.updates)), _sent(problem).rounds
        for rows in (problem.fit, problem.ask):
            _, turn = np.unique(rounds[rows], return_inverse=True)
            lengths[rows] -= (np.bincount(turn, lengths[rows]) / np.bincount(turn))[turn]
        return lengths


class History(SideChannel):
    """``participation``: the user whose prior device takes part in the same rounds."""

    name: Literal["participation"] = "participation"

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Correlation of the histories over rounds; 0 where a device always or never takes part."""
        history = _sent(problem).history.astype(np.float64)
        history -= history.mean(1, keepdims=True)
        history /= np.maximum(np.linalg.norm(history, axis=1, keepdims=True), 1e-12)
        of_user, _ = user_means(history, problem)
        scores: Scores = history[problem.ask] @ of_user.T
        return scores


class UpdateAndSideChannels(Component):
    """``ridge+sides``: ridge on the update, together with its norm and, as if it were independent of it, the count."""

    symmetric: ClassVar[bool] = True
    selectable: ClassVar[bool] = False
    name: Literal["ridge+sides"] = "ridge+sides"

    def settings(self, validations: Sequence[Validation], work: Workspace) -> Settings:
        """Ridge's and norm's settings, the temperature of ridge's scores, and the weight of norms beside them."""
        chosen = {**work.settings(Ridge(), validations), **work.settings(Norm(), validations)}
        rng = torch.Generator()  # neither draws
        by_update, by_norm = (
            np.concatenate([attack.scores(v.problem, chosen, work, rng) for v in validations])
            for attack in (Ridge(), Norm())
        )
        answers = np.concatenate([v.answers for v in validations])
        _, temperature = best_temperature(by_update, answers)
        weight = min(WEIGHTS, key=lambda weight: log_loss(temperature * by_update + weight * by_norm, answers))
        return {**chosen, "ridge_temperature": temperature, "norm_weight": weight}

    def scores(self, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
        """Sum of the three log-probabilities."""
        weighed = (
            (settings["ridge_temperature"], Ridge()),
            (settings.get("norm_weight", 1.0), Norm()),
            (1.0, Count()),  # halves of a prior have equal counts: what they say of its weight is worth nothing
        )
        parts = [
            log_softmax(weight * attack.scores(problem, settings, work, rng), axis=1) for weight, attack in weighed
        ]
        total: Scores = np.sum(parts, axis=0)
        return total


def likelihood(values: Doubles, problem: Problem, least_spread: float) -> Scores:
    """Return the log-density (q, m) of the asked rows' ``values`` (n,) around the mean of each user's known rows.

    The spread is that of all users' known rows around their means, or ``least_spread`` if that is larger. Users without
    a known row get less than any other.
    """
    means, known = user_means(values[:, None], problem)
    around = values[problem.fit] - means[problem.labels, 0]
    freedom = max(1, len(problem.fit) - int(known.sum()))
    spread = max(float(np.sqrt((around**2).sum() / freedom)), least_spread)
    scores = -0.5 * ((values[problem.ask][:, None] - means[None, :, 0]) / spread) ** 2
    scores[:, ~known] = scores[:, known].min() - 1.0
    return scores


def user_means(values: Doubles, problem: Problem) -> tuple[Doubles, np.ndarray]:
    """Return the mean (m, k) of the ``values`` (n, k) of each user's known rows, and which users have any (m,)."""
    totals = np.zeros((problem.options, values.shape[1]))
    np.add.at(totals, problem.labels, values[problem.fit])
    counts: Ints = np.bincount(problem.labels, minlength=problem.options)
    means: Doubles = totals / np.maximum(counts, 1)[:, None]
    return means, counts > 0


def _sent(problem: Problem) -> Sent:
    sent = problem.updates.sent
    if not sent.known:
        raise FedprintError("nothing is known of these updates but their numbers; leave out count, norm, participation")
    return sent
