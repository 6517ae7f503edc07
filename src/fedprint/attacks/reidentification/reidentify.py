"""Re-identification: which user sent this update (gradient-leaks, section 4.1; papers.md 2.3).

An attack is tuned on validation problems; :func:`answer` calibrates its scores and ranks the options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import log_softmax

from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.workspace import Attack, Settings, Workspace
from fedprint.types import Doubles, Ints, Ranking, Scores

TIE = 1e-5
"""Size of the random tie-break in nats: far above float64 rounding of a log-probability, below any real difference."""

TEMPERATURES = (1.0, 3.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0)
"""Outputs of a ridge shrink as its penalty grows."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The choice of validation: the attack's settings, the temperature of its scores, and its log-loss (nats) there."""

    settings: Settings
    temperature: float
    log_loss: float


def scores_of(attack: Attack, problem: Problem, settings: Settings, work: Workspace, rng: torch.Generator) -> Scores:
    """Return an attack's scores (q, m) of a problem; where it has modes, by a model for each mode."""
    if problem.modes is None:
        return attack.scores(problem, settings, work, rng)
    scores = np.empty((len(problem.ask), problem.options))
    for rows, part in problem.parts():
        scores[rows] = attack.scores(part, settings, work, rng)
    return scores


def tune(
    attack: Attack,
    validations: Sequence[Validation],
    work: Workspace,
    rng: torch.Generator,
    settings: Settings | None = None,
) -> Tuned:
    """Choose settings, unless they are given, and temperature on validation problems; chance there is log(m) nats."""
    settings = work.settings(attack, validations) if settings is None else settings
    scored = [scores_of(attack, v.problem, settings, work, rng) for v in validations]
    loss, temperature = best_temperature(np.concatenate(scored), np.concatenate([v.answers for v in validations]))
    return Tuned(settings=settings, temperature=temperature, log_loss=loss)


def answer(attack: Attack, problem: Problem, tuned: Tuned, work: Workspace, rng: torch.Generator) -> Ranking:
    """Rank all options for each question by an attack's scores."""
    return ranked(scores_of(attack, problem, tuned.settings, work, rng), tuned.temperature, rng)


def exchanged_scores(
    attack: Attack,
    problem: Problem,
    tuned: Tuned,
    scores: Scores,
    exchanged: Ints,
    work: Workspace,
    rng: torch.Generator,
) -> Scores:
    """Return scores (q, m) of the problem whose label i is ``exchanged[i]``, given those of the problem itself.

    Such a problem teaches nothing: the AP of its scores must be that of chance. A symmetric attack needs no new fit.
    """
    if not attack.symmetric:
        return scores_of(attack, replace(problem, labels=exchanged[problem.labels]), tuned.settings, work, rng)
    moved = np.empty_like(scores)
    moved[:, exchanged] = scores
    return moved


def ranked(scores: Scores, temperature: float, rng: torch.Generator) -> Ranking:
    """Rank all options for each question: calibrated log-probabilities (q, m), ties broken at random.

    scikit-learn's AP gives tied questions the precision of the whole tie: ten votes among a hundred users would score
    below random guessing, though guessing within a tie costs the adversary nothing.
    """
    guesses = torch.rand(scores.shape, generator=rng, dtype=torch.float64).numpy()
    return Ranking(scores=log_softmax(temperature * scores, axis=1) + TIE * guesses)


def averaged(scores: Sequence[Scores], weights: Sequence[float]) -> Scores:
    """Return the normalised weighted mean (q, m) of several rankings' log-probabilities; a single one unchanged."""
    return scores[0] if len(scores) == 1 else np.asarray(log_softmax(np.average(scores, 0, weights), axis=1))


def pool(scores: Scores, senders: Sequence[str]) -> tuple[Scores, list[str]]:
    """Join all updates with one pseudonym: log-probabilities (devices, m), and the devices' names in order.

    They are the mean of a device's log-probabilities, normalised again. A sum would rank devices by their number of
    updates, because updates of one device are alike. Assumes a pseudonym that persists (linkage ``device``).
    """
    names = sorted(set(senders))
    return log_softmax(mean_by_sender(scores, senders, names), axis=1), names


def mean_by_sender(scores: Doubles, senders: Sequence[str], names: Sequence[str]) -> Doubles:
    """Return the mean of the rows of ``scores`` (q, ...) with each of the ``names`` as sender: (names, ...)."""
    position = {name: i for i, name in enumerate(names)}
    rows = np.array([position[sender] for sender in senders])
    totals = np.zeros((len(names), *scores.shape[1:]))
    np.add.at(totals, rows, scores)
    means: Doubles = totals / np.bincount(rows, minlength=len(names)).reshape(-1, *[1] * (scores.ndim - 1))
    return means


def best_temperature(scores: Scores, answers: Ints) -> tuple[float, float]:
    """Return the least mean log-loss (nats) of ``softmax(temperature * scores)`` and its temperature.

    Log-loss is convex in the temperature: the search ends where it begins to rise.
    """
    best = (np.inf, TEMPERATURES[0])
    for temperature in TEMPERATURES:
        loss = log_loss(temperature * scores, answers)
        if loss >= best[0]:
            break
        best = (loss, temperature)
    return best


def log_loss(scores: Scores, answers: Ints) -> float:
    """Return the mean log-loss (nats) of the softmax of ``scores`` (q, m)."""
    return float(-log_softmax(scores, axis=1)[np.arange(len(answers)), answers].mean())
