"""How much of a user's data the adversary needs (papers.md 2.5: AP by prior examples per user)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from fedprint.analyses.base import SELECTED, Analysis, Bench
from fedprint.analyses.conditions.base import doubling
from fedprint.analyses.trials import UPDATES, Key, Trial
from fedprint.attacks.adversary.shadow_devices import ShadowDevice, cut_halves, rows_of, shadow_updates, spread_rounds
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.reidentify import Tuned, answer, tune
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.attacks.updates import Joined, MemoryUpdates, RowsOf
from fedprint.attacks.view import AttackerView
from fedprint.rng import torch_rng
from fedprint.types import Examples

LEAST_BACKGROUND = 10
"""Least number of background users from which settings are chosen."""


class PriorExamples(Analysis):
    """``prior-examples``: AP by the number of examples per user that the adversary knows, 1, 2, 4 ... all.

    It trains a shadow device per user on the first k examples of a random order of the prior (the sets are nested;
    users with fewer examples use all of them), from ``rounds`` recorded global models, and names every anonymous
    update. Nothing else of the prior is used: the attack is tuned for each k on ``validation_users`` background users.
    There devices with k examples of each user name devices with the others. (With fewer than ten background users it is
    tuned on the whole prior, by the attack stage.) Keys: ``attack``, ``prior_examples`` (k), ``rounds``, ``tuned_on``
    (background or prior).
    """

    name: Literal["prior-examples"] = "prior-examples"
    attack: str = SELECTED
    rounds: int = Field(default=6, ge=2)
    most: int | None = Field(default=None, ge=1)
    validation_users: int = Field(default=40, ge=LEAST_BACKGROUND)

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per amount."""
        view = bench.view
        attack, tuned = bench.attack(self.attack)
        validation = background_validation(view, self.validation_users, self.rounds)
        largest = max(len(user.examples["y"]) for user in view.prior_users)
        for k in amounts(min(self.most or largest, largest)):
            bench.progress(f"{k} prior examples")
            if validation is not None:
                tuned = _tuned_for(k, validation, attack, bench.rng(self.name, k, "tune"))
            work = Workspace(bench.view.device)
            scores = answer(attack, limited(bench, k, self.rounds), tuned, work, bench.rng(self.name, k)).scores
            rows = np.arange(len(scores), dtype=np.int64)
            keys: dict[str, Key] = {"attack": attack.name, "prior_examples": k, "rounds": self.rounds}
            keys["tuned_on"] = "prior" if validation is None else "background"
            yield Trial(questions=UPDATES, rows=rows, options=bench.options, scores=scores, keys=keys)


def amounts(most: int) -> list[int]:
    """Return 1, 2, 4 ... and ``most``, without a power of two above two thirds of it, which would cost as much."""
    return [k for k in doubling(most) if k == most or 3 * k < 2 * most]


def limited(bench: Bench, k: int, rounds: int) -> Problem:
    """Return the problem of naming all anonymous updates from devices with k prior examples per user."""
    view = bench.view
    known = {user.user_id: some_of(view, user.user_id, user.examples, k) for user in view.prior_users}
    made, names = _train(view, known, spread_rounds(view, rounds), f"{k}-known")
    position = {user: i for i, user in enumerate(bench.everyone.options)}
    anonymous = RowsOf(updates=view.store, rows=view.anonymous_rows)
    return Problem(
        updates=Joined(first=made, second=anonymous),
        fit=np.arange(len(names)),
        labels=np.array([position[view.labels[name]] for name in names], dtype=np.int64),
        ask=len(names) + np.arange(len(anonymous.rows)),
        options=len(position),
    )


def some_of(view: AttackerView, user_id: int, examples: Examples, k: int) -> Examples:
    """Return k random examples; the draws are nested in k."""
    order = torch.randperm(len(examples["y"]), generator=torch_rng(view.seed, "prior-examples", user_id))
    return rows_of(examples, order[:k])


@dataclass(frozen=True, kw_only=True)
class BackgroundValidation:
    """Shadow validation on background users: the adversary knows some examples of each and names updates with others.

    ``known`` maps a user to examples. ``asked`` are updates of devices with the users' other examples; ``names`` are
    their users. ``rounds`` are global models from which none of these updates was trained.
    """

    view: AttackerView
    known: Mapping[int, Examples]
    asked: MemoryUpdates
    names: list[int]
    rounds: list[int]


def background_validation(view: AttackerView, users: int, rounds: int) -> BackgroundValidation | None:
    """Return the validation with at most ``users`` background users, None where there are fewer than ten."""
    halves = cut_halves(view, view.background)
    if len(halves) < LEAST_BACKGROUND or view.store.rounds < 2:
        return None
    order = torch.randperm(len(halves), generator=torch_rng(view.seed, "rehearsal")).tolist()
    ids = sorted(halves)
    drawn = {ids[i]: halves[ids[i]] for i in sorted(order[:users])}
    at = spread_rounds(view, rounds)
    asked, names = _train(view, {user: second for user, (_, second) in drawn.items()}, at[1::2], "asked")
    known = {user: first for user, (first, _) in drawn.items()}
    return BackgroundValidation(view=view, known=known, asked=asked, names=names, rounds=at[::2])


def _tuned_for(k: int, validation: BackgroundValidation, attack: Attack, rng: torch.Generator) -> Tuned:
    view = validation.view
    known = {user: some_of(view, user, examples, k) for user, examples in validation.known.items()}
    made, names = _train(view, known, validation.rounds, f"{k}-rehearsed")
    position = {user: i for i, user in enumerate(known)}
    problem = Problem(
        updates=Joined(first=made, second=validation.asked),
        fit=np.arange(len(names)),
        labels=np.array([position[name] for name in names], dtype=np.int64),
        ask=len(names) + np.arange(len(validation.names)),
        options=len(known),
    )
    answers = np.array([position[name] for name in validation.names], dtype=np.int64)
    return tune(attack, (Validation(problem=problem, answers=answers),), Workspace(), rng)


def _train(
    view: AttackerView, examples: Mapping[int, Examples], rounds: Sequence[int], tag: str
) -> tuple[MemoryUpdates, list[int]]:
    """Train a device per user and round: updates (n, d) and the user behind each (n,)."""
    devices = [
        ShadowDevice(user_id=user, examples=known, round=t, tag=tag) for t in rounds for user, known in examples.items()
    ]
    return shadow_updates(view, devices), [device.user_id for device in devices]
