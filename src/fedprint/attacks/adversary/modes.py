"""A model for each mode of the background: it learns from shadow devices that drew the same mode (defence ``mm-aug``).

A device of mm-aug draws one mode (cluster) of the background and keeps it. The adversary removes from an update what
clean devices send; the rest is most similar to the update of a device with this mode alone, which shows the mode. Then
the adversary trains shadow devices of the likeliest users in that mode, and names the sender of each update by a model
of its mode. To first order a mode only adds a direction, which attacks/denoise.py can remove. But training is not
linear, and devices in the same mode show more (docs/adr/0007). These models need a first answer, from the training
mixes. They replace it, or are averaged with it where it is clearly better in shadow validation.
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
from fedprint.attacks.choices import LIKELIEST, MODE_ROUNDS, VALIDATION_MODES, WORSE
from fedprint.attacks.features import layer_groups
from fedprint.attacks.problem import NO_MODE, Modes, Problem, Validation
from fedprint.attacks.reidentification.reidentify import Tuned, averaged, scores_of, tune
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import Joined, RowsOf
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import CLUSTER
from fedprint.defences.on_data import MmAug
from fedprint.types import Doubles, Examples, Ints, Questions, Scores

Train = Callable[[DevicePlan], ShadowTable]

NAME = "by mode"


def have_modes(view: AttackerView) -> bool:
    """Return whether the adversary can recognise the devices' modes: it can where mm-aug is the only defence."""
    return bool(_clusters(view.defences or ())) and any(CLUSTER in user.examples for user in view.background)


def devices_by_mode(defences: Sequence[object], users: int, validation_rounds: int) -> tuple[int, int]:
    """Return about how many devices are trained by mode: with half a prior, for validation, and with a whole one.

    The number of modes is what ``users`` draw on average, each independently.
    """
    if not (clusters := _clusters(defences)):
        return 0, 0
    drawn, each = math.ceil(clusters * (1 - (1 - 1 / clusters) ** users)), min(LIKELIEST, users)
    return min(clusters, VALIDATION_MODES) * each * validation_rounds, drawn * each * MODE_ROUNDS


def _clusters(defences: Sequence[object]) -> int:
    """Return the number of modes where mm-aug is the only defence, else 0.

    A second defence of the data adds more than a mode. A defence of the update hides modes: shadow validation hardly
    notices, and models of wrong modes would answer (docs/adr/0007).
    """
    clusters = [defence.clusters for defence in defences if isinstance(defence, MmAug)]
    return clusters[0] if len(defences) == len(clusters) == 1 else 0


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
    """Return the models by mode alone, or with the choice at equal weight where they do clearly worse.

    Worse means a loss in shadow validation of more than :data:`WORSE`. Validation undervalues the models by mode
    (docs/adr/0007): halves have half the examples, and fewer models of each mode.

    ``clean`` is the mix of clean devices. ``train`` trains shadow devices; for validation they train from the same
    ``validation_rounds`` global models as the halves of priors.
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
        learnt = {user: pair[side] for user, pair in halves.items()}
        turns = spread_rounds(view, validation_rounds)[side::2]
        shadows = train(_plan(likeliest(scores, modes), learnt, questions, turns, f"half-{side}"))
        folds.append(Validation(problem=_with(problem, shadows, modes), answers=answers))
        before.append(scores)
    by_mode = tuple(
        Validation(problem=part, answers=fold.answers[rows]) for fold in folds for rows, part in fold.problem.parts()
    )
    after = validation_ap(validation_scores(Ridge(), folds, tune(Ridge(), by_mode, work, rng), work, rng), folds)
    gain = standard_errors(after - validation_ap(before, folds))
    scores = _answers(choice, tuned, [one.problem for one in choice.mixes], work, rng)
    modes = recognise_modes(clean.problem, devices.real.shadows.mode[clean.problem.nuisance], work)
    whole = {user.user_id: user.examples for user in view.prior_users}
    turns = spread_rounds(view, 2 * MODE_ROUNDS)[1::2]
    shadows = train(_plan(likeliest(scores, modes), whole, questions, turns, "whole"))
    mix = TrainingMix(name=NAME, problem=_with(clean.problem, shadows, modes), folds=by_mode, compared=tuple(folds))
    aps = {**choice.aps, NAME: float(np.nanmean(after))}
    if gain >= -WORSE:
        return Choice(mixes=(mix,), weights=(1.0,), aps=aps)
    return Choice(mixes=(*choice.mixes, mix), weights=(*(w / 2 for w in choice.weights), 0.5), aps=aps)


def standard_errors(gains: Doubles) -> float:
    """Return the mean of the users' gains (m,) over its standard error, without NaN; 0 for fewer than two users.

    Equal gains have no error: the result is infinite with their sign, or 0.
    """
    known = gains[~np.isnan(gains)]
    if len(known) < 2 or not known.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float(known.mean() / (known.std(ddof=1) / np.sqrt(len(known))))


def recognise_modes(problem: Problem, known: Ints, work: Workspace) -> Ints:
    """Return the mode (q,) that each asked update fits best, after what the fit rows span is removed from all.

    The fit rows are of clean devices. The nuisance rows are of devices that hold one mode alone: ``known`` (b,).
    """
    exchanged = replace(problem, fit=problem.nuisance, labels=known, nuisance=problem.fit, denoise="project")
    alike = work.kernel(exchanged, (tuple(layer_groups(problem.updates)), "l2"))[problem.ask]
    modes, index = np.unique(known, return_inverse=True)
    of_mode = np.eye(len(modes))[index]
    best: Ints = modes[(alike @ (of_mode / of_mode.sum(0))).argmax(1)]
    return best


def likeliest(scores: Scores, modes: Ints) -> Mapping[int, Ints]:
    """Return for each of the ``modes`` (q,) the options that rank highest in the scores (q, m) of an update of it."""
    ranks = (-scores).argsort(1).argsort(1)
    return {int(mode): ranks[modes == mode].min(0).argsort(kind="stable")[:LIKELIEST] for mode in np.unique(modes)}


def _answers(
    choice: Choice, tuned: Sequence[Tuned], problems: Sequence[Problem], work: Workspace, rng: torch.Generator
) -> Scores:
    """Return the choice's log-probabilities (q, m) by ridge; ``problems`` has one problem for each mix."""
    scored = [scores_of(Ridge(), p, how.settings, work, rng) for how, p in zip(tuned, problems, strict=True)]
    calibrated = [log_softmax(how.temperature * s, axis=1) for how, s in zip(tuned, scored, strict=True)]
    return averaged(calibrated, choice.weights)


def _most_frequent(modes: Ints, count: int) -> Ints:
    different, times = np.unique(modes, return_counts=True)
    return different[(-times).argsort(kind="stable")[:count]]


def _plan(
    users: Mapping[int, Ints], examples: Mapping[int, Examples], questions: Questions, turns: Sequence[int], tag: str
) -> DevicePlan:
    """Yield a device for each of the options ``users`` of a mode, with the user's ``examples``, in every turn."""
    for t in turns:
        for mode, options in users.items():
            for user in (questions.options[option] for option in options):
                if user in examples:
                    held, name = examples[user], f"{tag}-mode-{mode}"
                    yield ShadowDevice(user_id=user, examples=held, round=t, tag=name, defended=True, mode=mode), 0


def _with(problem: Problem, shadows: ShadowTable, asked: Ints) -> Problem:
    """Return the problem with rows of ``shadows`` for each of the ``asked`` modes (q,), beside the common fit rows.

    Its table has no other rows, because the products of all rows with all are the main cost.
    """
    known = np.concatenate([problem.fit, problem.ask])
    fit = np.concatenate([np.arange(len(problem.fit)), len(known) + np.arange(len(shadows.labels))])
    return Problem(
        updates=Joined(first=RowsOf(updates=problem.updates, rows=known), second=shadows.updates),
        fit=fit,
        labels=np.concatenate([problem.labels, shadows.labels]),
        ask=len(problem.fit) + np.arange(len(problem.ask)),
        options=problem.options,
        modes=Modes(fit=np.concatenate([np.full(len(problem.fit), NO_MODE), shadows.mode]), ask=asked),
    )
