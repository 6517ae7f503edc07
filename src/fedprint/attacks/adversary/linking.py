"""How an adversary joins the updates of a device: it averages their scores, or scores their average."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.special import log_softmax

from fedprint.attacks.adversary.adversaries import Choice
from fedprint.attacks.adversary.shadow_validation import validation_scores
from fedprint.attacks.problem import Validation
from fedprint.attacks.reidentification.linked import averaged, averaged_validations
from fedprint.attacks.reidentification.reidentify import (
    Tuned,
    exchanged_scores,
    mean_by_sender,
    ranked,
    scores_of,
    tune,
)
from fedprint.attacks.reidentification.reidentify import (
    averaged as averaged_scores,
)
from fedprint.attacks.reidentification.ridge import RidgeOfMeans
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.ranking import average_precision
from fedprint.types import Ints, Scores


@dataclass(frozen=True, kw_only=True)
class Linking:
    """The way that shadow validation prefers, and the mean AP of both ways there.

    ``scores`` and ``blind`` (g, m) are log-probabilities of the means of updates, and those with exchanged labels; None
    where scores are averaged.
    """

    by: Literal["scores", "updates"]
    aps: Mapping[str, float]
    scores: Scores | None = None
    blind: Scores | None = None


def link(
    attack: Attack,
    choice: Choice,
    tuned: Sequence[Tuned],
    parts: Sequence[Ints],
    exchanged: Ints,
    work: Workspace,
    rng: torch.Generator,
) -> Linking:
    """Choose a way on prior data, and score the means of ``parts`` (positions among the questions) if it is that.

    ``tuned`` are the attack's settings for each of the choice's mixes. Where devices have modes scores are averaged;
    ``ridge-means`` scores means elsewhere, whatever is preferred.
    """
    if any(mix.problem.modes is not None for mix in choice.mixes):
        return Linking(by="scores", aps={})
    of_all = iter(averaged_validations([fold for mix in choice.mixes for fold in mix.folds]))
    folds = [tuple(itertools.islice(of_all, len(mix.folds))) for mix in choice.mixes]
    settings = [tune(attack, of_mix, work, rng) for of_mix in folds]
    aps = {
        "scores": _mean_ap(choice, [
            [_by_user(scored, fold) for scored, fold in zip(
                validation_scores(attack, mix.folds, how, work, rng), mix.folds, strict=True)]
            for mix, how in zip(choice.mixes, tuned, strict=True)
        ]),
        "updates": _mean_ap(choice, [
            list(zip(validation_scores(attack, of_mix, how, work, rng), (f.answers for f in of_mix), strict=True))
            for of_mix, how in zip(folds, settings, strict=True)
        ]),
    }  # fmt: skip
    if aps["updates"] <= aps["scores"] and not isinstance(attack, RidgeOfMeans):
        return Linking(by="scores", aps=aps)
    real, blind = [], []
    problems = averaged([(mix.problem, parts) for mix in choice.mixes])
    for problem, how in zip(problems, settings, strict=True):
        found = scores_of(attack, problem, how.settings, work, rng)
        real.append(ranked(found, how.temperature, rng).scores)
        found = exchanged_scores(attack, problem, how, found, exchanged, work, rng)
        blind.append(ranked(found, how.temperature, rng).scores)
    weights = choice.weights
    return Linking(by="updates", aps=aps, scores=averaged_scores(real, weights), blind=averaged_scores(blind, weights))


def _by_user(scores: Scores, fold: Validation) -> tuple[Scores, Ints]:
    """Return the mean log-probabilities (u, m) of each user's asked updates, and the users (u,)."""
    users = np.unique(fold.answers)
    names = [str(user) for user in users]
    means = mean_by_sender(scores, [str(answer) for answer in fold.answers], names)
    return np.asarray(log_softmax(means, axis=1)), users


def _mean_ap(choice: Choice, scored: Sequence[Sequence[tuple[Scores, Ints]]]) -> float:
    """Return the users' mean AP over folds, averaged over mixes by their weights."""
    of_mixes = [np.mean([np.nanmean(average_precision(*each)) for each in folds]) for folds in scored]
    return float(np.average(of_mixes, weights=choice.weights))
