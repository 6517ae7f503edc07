"""A model for each mode: what users would send beside the very background that a device drew (defence ``mm-aug``).

A device of mm-aug draws one mode of the background and keeps it. With what clean devices send taken out, an update fits
its mode's own update best, so the adversary can tell which mode it was; then it trains the likeliest users' devices in
that mode, and answers each update by a model of its mode. To first order a mode only adds a direction, and taking that
out (attacks/denoise.py) would do; but training is not linear, and devices in the very mode tell more (docs/adr/0007).
They are trained after a first answer, and asked in place of whatever gave it; beside that where it is better in
rehearsals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.special import log_softmax

from fedprint.attacks.adversary.adversaries import Choice, TrainedShadows, TrainingMix
from fedprint.attacks.adversary.shadow_devices import ShadowDevice, spread_rounds
from fedprint.attacks.adversary.shadow_validation import (
    DevicePlan,
    ShadowTable,
    prior_halves,
    validation_ap,
    validation_scores,
)
from fedprint.attacks.features import layer_groups
from fedprint.attacks.problem import NO_MODE, Modes, Problem, Validation
from fedprint.attacks.reidentification.reidentify import Ridge, Tuned, Workspace, averaged, scores_of, tune
from fedprint.attacks.updates import Joined, RowsOf
from fedprint.attacks.view import AttackerView
from fedprint.defences.on_data import CLUSTER, MmAug
from fedprint.types import Doubles, Examples, Ints, Questions, Scores

Train = Callable[[DevicePlan], ShadowTable]

LIKELIEST, ROUNDS, VALIDATION_MODES = 6, 4, 20
"""Users who are trained in each mode, from how many global models, and in how many modes a rehearsal does it.

On two places of albums-plane (mm-aug 1 and 4; AP 46 and 26 % without), 6 users from 4 models had 54 and 38 %, 12 from 2
had 49 and 41, 12 from 4 had 53 and 48, and all 24 from 4 had 51 and 46. Six, for the cost:
100 writers draw some 60 modes.
"""
WORSE = 1.0
"""Standard errors of loss in rehearsals above which they do not answer alone."""
NAME = "by mode"


def have_modes(view: AttackerView) -> bool:
    """Return whether devices draw modes that the adversary knows and can tell: mm-aug alone defends them."""
    return bool(_clusters(view.defences or ())) and any(CLUSTER in user.examples for user in view.background)


def devices_by_mode(defences: Sequence[object], users: int, validation_rounds: int) -> tuple[int, int]:
    """Return about how many devices are trained by mode: with halves of priors in rehearsals, and with whole ones.

    As many modes as ``users`` draw on average, each for itself.
    """
    if not (clusters := _clusters(defences)):
        return 0, 0
    drawn, each = math.ceil(clusters * (1 - (1 - 1 / clusters) ** users)), min(LIKELIEST, users)
    return min(clusters, VALIDATION_MODES) * each * validation_rounds, drawn * each * ROUNDS


def _clusters(defences: Sequence[object]) -> int:
    """Return how many modes the defences have, 0 where modes alone do not tell what a device adds or sends.

    Nor behind a defence of the update: it hides modes too, rehearsals hardly notice, and models of wrong modes answer
    (docs/adr/0007).
    """
    found = [defence.clusters for defence in defences if isinstance(defence, MmAug)]
    return found[0] if len(defences) == len(found) == 1 else 0


def with_modes(
    choice: Choice,
    clean: TrainingMix,
    view: AttackerView,
    questions: Questions,
    devices: TrainedShadows,
    train: Train,
    work: Workspace,
    rng: torch.Generator,
    *,
    validation_rounds: int,
) -> Choice:
    """Return models by mode in place of the choice, or beside it, with equal weight, where that rehearses better.

    Rehearsals undervalue them (docs/adr/0007): halves have half the examples, and fewer models of each mode.

    ``clean`` is the recipe that learns from clean devices; ``train`` trains devices off line, for rehearsals from the
    global models from which the halves of priors were, ``rehearsed_rounds``.
    """
    if devices.real is None:
        return choice
    halves, folds, before = prior_halves(view), [], []
    tuned = [tune(Ridge(), mix.folds, work, rng) for mix in choice.mixes]
    for side, fold in enumerate(clean.folds):
        scores = _answers(choice, tuned, [one.comparison[side].problem for one in choice.mixes], work, rng)
        modes = recognise_modes(fold.problem, devices.halves.mode[fold.problem.nuisance], work)
        kept = np.isin(modes, _most_frequent(modes, VALIDATION_MODES))
        problem = replace(fold.problem, ask=fold.problem.ask[kept])
        scores, modes, answers = scores[kept], modes[kept], fold.answers[kept]
        own = {user: pair[side] for user, pair in halves.items()}
        turns = spread_rounds(view, validation_rounds)[side::2]
        made = train(_plan(likeliest(scores, modes), own, questions, turns, f"half-{side}"))
        folds.append(Validation(problem=_with(problem, made, modes), answers=answers))
        before.append(scores)
    learnt = tuple(
        Validation(problem=part, answers=fold.answers[rows]) for fold in folds for rows, part in fold.problem.parts()
    )
    told = validation_scores(Ridge(), folds, tune(Ridge(), learnt, work, rng), work, rng)
    after = validation_ap(told, folds)
    gain = standard_errors(after - validation_ap(before, folds))
    scores = _answers(choice, tuned, [one.problem for one in choice.mixes], work, rng)
    modes = recognise_modes(clean.problem, devices.real.made.mode[clean.problem.nuisance], work)
    own = {user.user_id: user.examples for user in view.prior_users}
    turns = spread_rounds(view, 2 * ROUNDS)[1::2]
    made = train(_plan(likeliest(scores, modes), own, questions, turns, "whole"))
    mix = TrainingMix(name=NAME, problem=_with(clean.problem, made, modes), folds=learnt, compared=tuple(folds))
    aps = {**choice.aps, NAME: float(np.nanmean(after))}
    if gain >= -WORSE:
        return Choice(mixes=(mix,), weights=(1.0,), aps=aps)
    return Choice(mixes=(*choice.mixes, mix), weights=(*(w / 2 for w in choice.weights), 0.5), aps=aps)


def standard_errors(gains: Doubles) -> float:
    """Return by how many standard errors the mean of the users' gains (m,) is above 0, NaN aside; 0 for fewer than two.

    Equal gains have no error: they are infinitely many above, or below, or 0.
    """
    known = gains[~np.isnan(gains)]
    if len(known) < 2 or not known.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float(known.mean() / (known.std(ddof=1) / np.sqrt(len(known))))


def recognise_modes(problem: Problem, known: Ints, work: Workspace) -> Ints:
    """Return the mode (q,) that each asked update fits best, once what the fit rows span is taken out of all.

    The fit rows are of clean devices, the nuisance rows of devices that hold nothing but a mode: ``known`` (b,).
    """
    exchanged = replace(problem, fit=problem.nuisance, labels=known, nuisance=problem.fit, denoise="project")
    alike = work.kernel(exchanged, (tuple(layer_groups(problem.updates)), "l2"))[problem.ask]
    modes, place = np.unique(known, return_inverse=True)
    of_mode = np.eye(len(modes))[place]
    best: Ints = modes[(alike @ (of_mode / of_mode.sum(0))).argmax(1)]
    return best


def likeliest(scores: Scores, modes: Ints) -> Mapping[int, Ints]:
    """Return for each of the ``modes`` (q,) the options that are high among the scores (q, m) of an update in it."""
    ranks = (-scores).argsort(1).argsort(1)
    return {int(mode): ranks[modes == mode].min(0).argsort(kind="stable")[:LIKELIEST] for mode in np.unique(modes)}


def _answers(
    choice: Choice, tuned: Sequence[Tuned], problems: Sequence[Problem], work: Workspace, rng: torch.Generator
) -> Scores:
    """Return the choice's log-probabilities (q, m) by ridge, each recipe's on its own of the ``problems``."""
    scored = [scores_of(Ridge(), p, how.settings, work, rng) for how, p in zip(tuned, problems, strict=True)]
    told = [log_softmax(how.temperature * s, axis=1) for how, s in zip(tuned, scored, strict=True)]
    return averaged(told, choice.weights)


def _most_frequent(modes: Ints, count: int) -> Ints:
    found, times = np.unique(modes, return_counts=True)
    return found[(-times).argsort(kind="stable")[:count]]


def _plan(
    users: Mapping[int, Ints], own: Mapping[int, Examples], questions: Questions, turns: Sequence[int], tag: str
) -> DevicePlan:
    """Yield a device for each of the options ``users`` of a mode, with its examples of ``own``, in every turn."""
    for t in turns:
        for mode, options in users.items():
            for user in (questions.options[option] for option in options):
                if user in own:
                    name = f"{tag}-mode-{mode}"
                    yield ShadowDevice(user_id=user, examples=own[user], round=t, tag=name, defended=True, mode=mode), 0


def _with(problem: Problem, made: ShadowTable, asked: Ints) -> Problem:
    """Return the problem whose ``asked`` modes (q,) have rows of their own, beside the fit rows, which serve all.

    Its table has no other rows: products of all with all are what it costs.
    """
    known = np.concatenate([problem.fit, problem.ask])
    fit = np.concatenate([np.arange(len(problem.fit)), len(known) + np.arange(len(made.labels))])
    return Problem(
        updates=Joined(first=RowsOf(updates=problem.updates, rows=known), second=made.updates),
        fit=fit,
        labels=np.concatenate([problem.labels, made.labels]),
        ask=len(problem.fit) + np.arange(len(problem.ask)),
        options=problem.options,
        modes=Modes(fit=np.concatenate([np.full(len(problem.fit), NO_MODE), made.mode]), ask=asked),
    )
