"""Does an update or raw examples of the same device identify the user better (gradient-leaks v2, 6.1.6)?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from scipy.special import log_softmax

from fedprint.analyses.base import SELECTED, Analysis, Bench, Facts
from fedprint.analyses.conditions.base import doubling
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial
from fedprint.data.examples import as_input
from fedprint.rng import numpy_rng
from fedprint.types import Ints, User

METRICS = ("ap", "top1", "ap_over_chance")


class DataSpace(Analysis):
    """``data-space``: re-identification from one raw example and from sets of 2, 4 ... ``most``, beside one update.

    Here private examples are exposed on purpose, in the facts of the questions: it is a comparison and not an attack on
    federated learning. From each private device ``sets`` sets per size are drawn (all its examples, where it has
    fewer), and the exposed examples are shuffled over all users. Keys: ``space`` (data, update), ``set_size`` and
    ``attack``: ``network`` (the paper's: a classifier of users, sets by their mean feature) and ``likelihood`` (the
    best of simpler classifiers on held-out prior examples, log-probabilities summed over the set). Both learn from the
    raw prior.
    """

    name: Literal["data-space"] = "data-space"
    most: int = Field(default=64, ge=1)
    sets: int = Field(default=8, ge=1)
    epochs: int = Field(default=20, ge=1)

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask who owns each set; facts: examples ``x`` (a, ...), ``members`` (q, most) of them or -1, ``size`` (q,)."""
        rng = numpy_rng(facts.seed, self.name)
        pool, rows_of_users = _pool(facts.private, rng)
        members, sizes, answers = [], [], []
        for size in doubling(self.most):
            for user, rows in zip(facts.private, rows_of_users, strict=True):
                for _ in range(self.sets):
                    drawn = rng.choice(rows, min(size, len(rows)), replace=False)
                    members.append(np.pad(drawn, (0, self.most - len(drawn)), constant_values=-1))
                    sizes.append(size)
                    answers.append(user.user_id)
        order = rng.permutation(len(sizes))
        exposed = {"x": pool.numpy(), "members": np.array(members)[order], "size": np.array(sizes)[order]}
        truth = np.array(answers, dtype=np.int64)[order]
        yield (
            QuestionSet(name=self.name, kind="user", subjects=np.arange(len(order)), facts=exposed),
            AnswerSet(name=self.name, answers=truth, users=truth),
        )

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield the update's trial, then one per attack and size."""
        update = bench.scores(SELECTED, bench.problem, self.name)
        keys: dict[str, Key] = {"attack": bench.attack(SELECTED)[0].name, "space": "update", "set_size": None}
        yield replace(bench.trial(bench.problem, update, keys), metrics=METRICS)
        asked = bench.questions[self.name].facts
        members, ask = asked["members"], as_input(torch.from_numpy(asked["x"]))
        for attack in ("network", "likelihood"):
            bench.progress(attack)
            scores = self._scores(bench, attack, ask, members)
            for size in np.unique(asked["size"]).tolist():
                rows = np.flatnonzero(asked["size"] == size)
                keys = {"attack": attack, "space": "data", "set_size": size}
                yield Trial(
                    questions=self.name,
                    rows=rows,
                    options=bench.options,
                    scores=scores[rows],
                    keys=keys,
                    metrics=METRICS,
                )

    def _scores(self, bench: Bench, attack: str, ask: torch.Tensor, members: Ints) -> np.ndarray:
        """Return log-probabilities (q, m) of all sets."""
        from fedprint.attacks.reidentification.raw import (
            fit_network,
            likelihood_scores,
            network_set_scores,
            sums_over_sets,
        )

        x, users = _labelled(bench)
        rng, options = bench.rng(self.name, attack), len(bench.options)
        if attack == "network":
            return network_set_scores(fit_network(x, users, options, self.epochs, rng), ask, members)
        single = likelihood_scores(x, users, ask, options, rng)
        scores: np.ndarray = log_softmax(sums_over_sets(single, members), axis=1)
        return scores


def _pool(private: tuple[User, ...], rng: np.random.Generator) -> tuple[torch.Tensor, list[Ints]]:
    """Return all private examples in random order (a, ...), and each user's positions among them."""
    x = torch.cat([user.examples["x"] for user in private])
    owner = np.repeat(np.arange(len(private)), [len(user.examples["x"]) for user in private])
    order = rng.permutation(len(owner))
    owner = owner[order]
    return x[torch.from_numpy(order)], [np.flatnonzero(owner == i) for i in range(len(private))]


def _labelled(bench: Bench) -> tuple[torch.Tensor, Ints]:
    """Return the raw examples of the prior (n, ...) in random order, and their users as positions in the options."""
    position = {int(user): i for i, user in enumerate(bench.options)}
    prior = bench.view.prior_users
    x = torch.cat([user.examples["x"] for user in prior])
    users = np.repeat([position[user.user_id] for user in prior], [len(user.examples["x"]) for user in prior])
    order = torch.randperm(len(users), generator=bench.rng("data-space", "order"))
    return as_input(x)[order], users[order.numpy()].astype(np.int64)
