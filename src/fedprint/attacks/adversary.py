"""Adversaries who know that updates are defended, and adversaries who do not (papers.md 5.1).

Where devices are defended, the adversary makes its own examples of updates: it trains its prior users' data off line,
from the recorded global models. The *naive* one trains as if nobody were defended. The *adaptive* one knows the
defences' public parameters, not their randomness; it may learn from clean devices, from defended ones (each with a
draw of its own), or from both, and chooses on prior data alone: one half of each prior learns, the other half,
defended like an anonymous device, is asked for. It may choose clean devices too, so what it knows can make it weaker
only by an unlucky choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedprint.attacks.denoise import Denoise
from fedprint.attacks.reidentify import Ridge, Workspace, tune
from fedprint.attacks.shadow import (
    Problem,
    ShadowDevice,
    Validation,
    attack_problem,
    cut_halves,
    rows_of,
    shadow_updates,
    spread_rounds,
    validations,
)
from fedprint.attacks.updates import Joined, MemoryUpdates, Recorded
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import concat
from fedprint.defences.on_data import CLUSTER
from fedprint.defences.secret_head import SecretHead
from fedprint.rng import torch_rng
from fedprint.types import AdversaryName, DataDefence, Examples, FedprintError, Questions

Ints = NDArray[np.int64]
Progress = Callable[[int], None]

CLEAN, DEFENDED, NUISANCE = 0, 1, 2
RECIPES: Mapping[str, tuple[int, ...]] = {"clean": (CLEAN,), "defended": (DEFENDED,), "both": (CLEAN, DEFENDED)}
"""What the adaptive adversary may learn from."""

NUISANCE_ROUNDS, NUISANCE_SETS = 2, 40
"""Global models from which devices with nothing but background are trained, and how many where it has no clusters."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A way to learn: the real problem, and rehearsals of it whose answers the adversary knows."""

    name: str
    problem: Problem
    folds: tuple[Validation, ...]

    def without(self, how: Denoise) -> Recipe:
        """Return the recipe that first takes out of updates what background examples put into them."""
        folds = tuple(replace(fold, problem=replace(fold.problem, denoise=how)) for fold in self.folds)
        return Recipe(name=f"{self.name}, {how}", problem=replace(self.problem, denoise=how), folds=folds)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is trained off line.

    ``rounds`` recorded global models train every prior, and ``validation_rounds`` its halves; ``draws`` defended
    devices stand beside each clean one.
    """

    rounds: int
    draws: int
    validation_rounds: int

    def devices(self, name: AdversaryName, view: AttackerView, *, recorded: bool) -> int:
        """Return how many devices :func:`recipes` trains, at most."""
        rounds, validation = (min(count, view.store.rounds) for count in (self.rounds, self.validation_rounds))
        if name == "adaptive":
            background = 2 * sum(1 for _ in _nuisance(view))  # for the halves, and for the whole priors
            return len(view.prior_users) * (rounds + validation) * (1 + self.draws) + background
        return len(view.prior_users) * (validation + (0 if recorded else rounds))


def recipes(
    name: AdversaryName,
    view: AttackerView,
    questions: Questions,
    effort: Effort,
    *,
    recorded: bool,
    progress: Progress = lambda done: None,
) -> tuple[Recipe, ...]:
    """Return what an adversary chooses from.

    ``recorded`` says that the prior devices took part in the federation undefended: then the naive adversary learns
    from their recorded updates, as in the papers. Raises FedprintError when too little was recorded.
    """
    if name == "adaptive":
        return tuple(_adaptive(view, questions, effort, progress))
    folds = validations(view, questions, rounds=effort.validation_rounds, progress=progress)
    before = len(folds[0].problem.fit) + len(folds[0].problem.ask)
    if recorded:
        return (Recipe(name="recorded", problem=attack_problem(view, questions), folds=folds),)
    made = _trained(view, questions, _whole(view, effort, draws=0), lambda done: progress(before + done))
    return (Recipe(name="clean", problem=_asked(view, questions, made, (CLEAN,)), folds=folds),)


def choose(found: Sequence[Recipe], work: Workspace, rng: torch.Generator) -> tuple[Recipe, Mapping[str, float]]:
    """Return the recipe with which ridge does best in the rehearsals, and the log-loss (nats) of each it tried.

    What to learn from is chosen first, then whether to take background out.
    """
    if len(found) == 1:
        return found[0], {}
    losses: dict[str, float] = {}

    def best(among: Sequence[Recipe]) -> Recipe:
        for recipe in among:
            if recipe.name not in losses:
                losses[recipe.name] = tune(Ridge(), recipe.folds, work, rng).log_loss
        return min(among, key=lambda recipe: losses[recipe.name])

    plain = best(found)
    if not len(plain.problem.nuisance):
        return plain, losses
    return best((plain, plain.without("project"), plain.without("match"))), losses


def relabelled(problem: Problem, exchanged: Ints) -> Problem:
    """Return the problem with label i (m,) exchanged for ``exchanged[i]``: nothing is left to learn."""
    return replace(problem, labels=exchanged[problem.labels])


@dataclass(frozen=True, kw_only=True)
class _Made:
    """Updates (n, d) made off line, and (n,) ``labels``, ``kind`` of device, ``side``: which half of a prior it has."""

    updates: MemoryUpdates
    labels: Ints
    kind: Ints
    side: Ints

    def rows(self, kinds: Sequence[int], side: int | None = None) -> Ints:
        wanted = np.isin(self.kind, kinds)
        return np.flatnonzero(wanted if side is None else wanted & (self.side == side))


_Plan = Iterable[tuple[ShadowDevice, int]]
"""Devices and the half of the prior that each has, -1 for neither."""


def _adaptive(view: AttackerView, questions: Questions, effort: Effort, progress: Progress) -> Iterator[Recipe]:
    if view.defences is None:
        raise FedprintError("an adaptive adversary must know the defences; choose threat.adversaries: [naive]")
    empty = list(_nuisance(view))
    halves = _trained(view, questions, [*_halves(view, effort), *empty], progress)
    before = len(halves.labels)
    plan = [*_whole(view, effort, effort.draws), *empty]
    whole = _trained(view, questions, plan, lambda done: progress(before + done))
    for name, kinds in RECIPES.items():
        folds = tuple(_fold(halves, kinds, side, len(questions.options)) for side in (0, 1))
        yield Recipe(name=name, problem=_asked(view, questions, whole, kinds), folds=folds)


def _nuisance(view: AttackerView) -> _Plan:
    """Yield devices that hold nothing but what a defence of the data adds: a cluster each, or random background."""
    if not any(_adds_examples(defence) for defence in view.defences or ()) or not view.background:
        return
    pool = concat([user.examples for user in view.background])
    size = int(np.median([len(user.examples["y"]) for user in view.prior_users]))
    order = torch.randperm(len(pool["y"]), generator=torch_rng(view.seed, "nuisance"))
    if CLUSTER in pool:
        modes = pool[CLUSTER][order]
        sets = [order[modes == mode][:size] for mode in torch.unique(modes)]
    else:
        sets = list(torch.split(order, size))[:NUISANCE_SETS]
    for t in spread_rounds(view, 2 * NUISANCE_ROUNDS)[1::2]:
        for i, members in enumerate(sets):
            yield ShadowDevice(user_id=-1 - i, examples=rows_of(pool, members), round=t, tag="nuisance"), -1


def _adds_examples(defence: object) -> bool:
    return isinstance(defence, DataDefence) and not isinstance(defence, SecretHead)


def _whole(view: AttackerView, effort: Effort, draws: int) -> _Plan:
    """Yield a clean device and ``draws`` defended ones for every prior and round."""
    for t in spread_rounds(view, effort.rounds):
        for user in view.prior_users:
            for device in _both_kinds(user.user_id, user.examples, t, "whole", draws):
                yield device, 0


def _halves(view: AttackerView, effort: Effort) -> _Plan:
    """Yield the same for the halves of every prior, first halves at even turns: fit and ask share no global model."""
    if view.store.rounds < 2:
        raise FedprintError(f"validation needs two rounds, the store has {view.store.rounds}; raise federation.rounds")
    halves = cut_halves(view, view.prior_users)
    if len(halves) < max(2, len(view.prior_users) // 2):  # single examples: the same data on both sides
        halves = {user.user_id: (user.examples, user.examples) for user in view.prior_users}
    for turn, t in enumerate(spread_rounds(view, effort.validation_rounds)):
        side = turn % 2
        for user_id, pair in halves.items():
            for device in _both_kinds(user_id, pair[side], t, f"half-{side}", effort.draws):
                yield device, side


def _both_kinds(user_id: int, examples: Examples, t: int, tag: str, draws: int) -> Iterator[ShadowDevice]:
    yield ShadowDevice(user_id=user_id, examples=examples, round=t, tag=f"{tag}-clean")
    for draw in range(draws):
        yield ShadowDevice(user_id=user_id, examples=examples, round=t, tag=f"{tag}-{draw}", defended=True)


def _trained(view: AttackerView, questions: Questions, plan: _Plan, progress: Progress) -> _Made:
    devices, sides = zip(*plan, strict=True)
    position = {user: i for i, user in enumerate(questions.options)}
    return _Made(
        updates=shadow_updates(view, devices, progress),
        labels=np.array([position.get(view.labels.get(d.user_id, -1), -1) for d in devices], dtype=np.int64),
        kind=np.array([NUISANCE if d.user_id < 0 else DEFENDED if d.defended else CLEAN for d in devices]),
        side=np.array(sides, dtype=np.int64),
    )


def _fold(made: _Made, kinds: Sequence[int], side: int, options: int) -> Validation:
    """Return the rehearsal that learns from one half of each prior and is asked for the other, defended."""
    fit, ask = made.rows(kinds, side), made.rows((DEFENDED,), 1 - side)
    problem = Problem(
        updates=made.updates,
        fit=fit,
        labels=made.labels[fit],
        ask=ask,
        options=options,
        nuisance=made.rows((NUISANCE,)),
    )
    return Validation(problem=problem, answers=made.labels[ask])


def _asked(view: AttackerView, questions: Questions, made: _Made, kinds: Sequence[int]) -> Problem:
    """Return the real problem: learn from updates made off line, name the sender of every anonymous one."""
    fit, anonymous = made.rows(kinds), Recorded(store=view.store, rows=view.anonymous_rows)
    return Problem(
        updates=Joined(first=made.updates, second=anonymous),
        fit=fit,
        labels=made.labels[fit],
        ask=len(made.labels) + np.arange(len(anonymous.rows)),
        options=len(questions.options),
        nuisance=made.rows((NUISANCE,)),
    )
