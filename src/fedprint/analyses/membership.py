"""Did this client take part at all? Asked of who sees raw updates, sums per round, or the released models only.

Members and others are alike but for the one thing asked about: half of all users (``federation.absent``) keep their
anonymous device at home, while everybody's prior device takes part and everybody's prior is known. From sums and
released models the adversary first scores who took part in each round, as ``participation`` does. How those scores
fall for members and for others it learns in rehearsals, on cohorts made of halves of the priors (in the spirit of LiRA,
Carlini et al. 2022), one for each sampling rate and noise that rounds have, both public, and it adds up the likelihood
ratios of the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.stats import norm

from fedprint.analyses.base import SELECTED, Analysis, Bench, Facts
from fedprint.analyses.participation import PENALTIES, Participation, explain, rests
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial
from fedprint.attacks.reidentify import pool
from fedprint.attacks.shadow import ShadowDevice, cut_halves, shadow_updates, spread_rounds
from fedprint.attacks.view import AttackerView
from fedprint.rng import numpy_rng
from fedprint.types import Examples, FedprintError, View

Doubles = NDArray[np.float64]
USERS, ROUNDS = "membership", "membership-rounds"
_COHORTS = 5
"""Rehearsed cohorts per round."""
_SUMMED: tuple[View, ...] = ("aggregate", "central")


class Membership(Analysis):
    """``membership``: did this user's anonymous device take part in the training, under each view?

    Metrics: ``membership_auc`` and ``membership_tpr`` (at 5 % false alarms) over users; ``participation_ap``, the
    average precision over pairs of user and round, of the scores that they are made of. Keys: ``view``; ``attack`` is
    the experiment's selected one under ``local``, ``candidates`` under the others, and ``loss``, of the final model on
    the user's prior, under ``central``. ``rounds`` of the training are looked at, evenly spread.
    """

    knows_defences: ClassVar[bool] = True

    name: Literal["membership"] = "membership"
    rounds: int = Field(default=20, ge=1)
    validation_rounds: int = Field(default=3, ge=1)

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask about every user, and about every user in every round.

        Raises FedprintError where everybody took part, or nobody: then there is nothing to tell apart.
        """
        users = np.array(facts.users, dtype=np.int64)
        answers = np.isin(users, facts.owner[facts.rows("anonymous")]).astype(np.int64)
        if len(set(answers.tolist())) < 2:
            who = "every" if answers.all() else "no"
            raise FedprintError(f"analyses.membership: {who} user took part; set federation.absent to 0.5, say")
        asked = QuestionSet(name=USERS, kind="fits", subjects=users)
        yield asked, AnswerSet(name=USERS, answers=answers, users=users)
        for pairs, found in Participation(rounds=self.rounds).ask(facts):
            yield (
                QuestionSet(name=ROUNDS, kind="fits", subjects=pairs.subjects),
                AnswerSet(name=ROUNDS, answers=found.answers, users=found.users),
            )

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield two trials per view, and one of the loss."""
        users = bench.questions[USERS].subjects
        pairs = bench.questions[ROUNDS].subjects
        rounds = np.unique(pairs[:, 0])
        place = {int(user): i for i, user in enumerate(users)}
        row = np.searchsorted(rounds, pairs[:, 0]), np.array([place[int(user)] for user in pairs[:, 1]])
        for view, by_round, by_user in self._scores(bench, rounds.tolist(), users):
            attack = bench.selected if view == "local" else "candidates"
            yield _trial(ROUNDS, by_round[row], attack, view, ("participation_ap",))
            yield _trial(USERS, by_user, attack, view, ("membership_auc", "membership_tpr"))
        loss = final_loss(bench.view, users)
        yield _trial(USERS, -loss, "loss", "central", ("membership_auc", "membership_tpr"))

    def _scores(
        self, bench: Bench, rounds: list[int], users: NDArray[np.int64]
    ) -> Iterator[tuple[View, Doubles, Doubles]]:
        """Yield scores of each view by round (T, U) and over all rounds (U,)."""
        yield "local", *from_updates(bench, rounds, users)
        view = bench.view
        priors = {user.user_id: user.examples for user in view.prior_users}
        parts: dict[View, list[Doubles]] = {"aggregate": [], "central": []}
        levels = {t: level(view, t) for t in rounds}
        found = calibrated(view, self.validation_rounds, dict.fromkeys(levels.values()))
        for t in rounds:
            bench.progress(f"round {t}")
            candidates = candidate_updates(view, {int(user): priors[int(user)] for user in users}, t, "whole")
            for name, rest in rests(view, t).items():
                parts[name].append(explain(rest, candidates, found[levels[t]][name].penalty))
        for name, scores in parts.items():
            ratios = [found[levels[t]][name].ratios(s, levels[t].rate) for t, s in zip(rounds, scores, strict=True)]
            yield name, np.stack(scores), np.sum(ratios, axis=0)


def _trial(questions: str, scores: Doubles, attack: str, view: View, metrics: tuple[str, ...]) -> Trial:
    keys: dict[str, Key] = {"attack": attack, "view": view}
    if view == "local":  # by the recorded updates of the adversary's own devices, which are defended as all are
        keys["recipe"] = "recorded"
    options = np.zeros(0, dtype=np.int64)
    rows = np.arange(len(scores))
    return Trial(questions=questions, rows=rows, options=options, scores=scores[:, None], keys=keys, metrics=metrics)


# ---- raw updates ---------------------------------------------------------------------------------------------------


def from_updates(bench: Bench, rounds: list[int], users: NDArray[np.int64]) -> tuple[Doubles, Doubles]:
    """Return how well the best update of each round (T, U), and the best device of all (U,), fits each user.

    By the experiment's selected attack, in nats; a round without anonymous updates fits nobody.
    """
    scores = bench.scores(SELECTED, bench.problem, USERS)[:, np.searchsorted(bench.options, users)]
    index = bench.view.store.index.iloc[bench.view.anonymous_rows]
    sent = index["round"].to_numpy()
    by_round = np.full((len(rounds), len(users)), scores.min())
    for i, t in enumerate(rounds):
        if (sent == t).any():
            by_round[i] = scores[sent == t].max(0)
    pooled, _ = pool(scores, index["pseudonym"].tolist())
    return by_round, pooled.max(0)


# ---- sums and released models --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Level:
    """What of a round is public: the share of devices that it samples, and the server's noise on its sum.

    ``noise`` is a standard deviation per coordinate.
    """

    rate: float
    noise: float


def level(view: AttackerView, t: int) -> Level:
    """Return the level of round ``t``; an adversary that does not know of the defence knows of no noise."""
    noise = view.rule.noise[t] if view.rule.noise and view.defences is not None else 0.0
    return Level(rate=view.rule.rates[t], noise=noise)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The ``penalty`` of :func:`explain`, and mean and spread of scores of users inside a cohort and outside."""

    penalty: float
    inside: tuple[float, float]
    outside: tuple[float, float]

    @property
    def separation(self) -> float:
        """How far apart the two are, in spreads."""
        return (self.inside[0] - self.outside[0]) / self.spread

    @property
    def spread(self) -> float:
        """The root mean square of both spreads."""
        return math.hypot(self.inside[1], self.outside[1]) / math.sqrt(2)

    def ratios(self, scores: Doubles, rate: float) -> Doubles:
        """Return the log-likelihood ratios of scores: of a member, in a round at ``rate``, over one who never is.

        Both spreads are taken as equal (their root mean square), so that a higher score never speaks against a member.
        """
        inside, outside = (norm.logpdf(scores, mean, self.spread) for mean in (self.inside[0], self.outside[0]))
        gain = inside - outside
        found: Doubles = np.logaddexp(np.log1p(-rate), np.log(rate) + gain) if rate < 1 else gain
        return found


def calibrated(
    view: AttackerView, rounds: int, levels: Collection[Level]
) -> Mapping[Level, Mapping[View, Calibration]]:
    """Return, by level, for sums and for released models, the penalty that separates rehearsed members best.

    And by how much it does. Cohorts are sums of second halves of priors, which first halves explain; released models
    have the known noise of the server besides. Users with one example have no halves: with fewer than four others
    nothing is rehearsed.
    """
    halves = cut_halves(view, view.prior_users)
    if len(halves) < 4:
        flat = Calibration(penalty=PENALTIES[-1], inside=(1.0, 1.0), outside=(0.0, 1.0))
        return {at: {"aggregate": flat, "central": flat} for at in levels}
    rng = numpy_rng(view.seed, USERS, "cohorts")
    seen: list[tuple[Level, View]] = [(at, name) for at in levels for name in _SUMMED]
    scores: dict[tuple[Level, View], dict[float, list[Doubles]]] = {key: {p: [] for p in PENALTIES} for key in seen}
    members: dict[Level, list[NDArray[np.bool_]]] = {at: [] for at in levels}
    for t in spread_rounds(view, rounds):
        first, second = (
            candidate_updates(view, {u: pair[side] for u, pair in halves.items()}, t, f"half-{side}") for side in (0, 1)
        )
        for _ in range(_COHORTS):
            order, drawn = rng.permutation(len(halves)), rng.normal(size=second.shape[1])
            for at in levels:
                members[at].append(order < min(max(1, round(at.rate * len(halves))), len(halves) - 1))
            rest = [
                second[members[at][-1]].sum(0) + (at.noise * drawn if name == "central" else 0.0) for at, name in seen
            ]
            for p in PENALTIES:
                for key, found in zip(seen, explain(np.stack(rest, axis=1), first, p).T, strict=True):
                    scores[key][p].append(found)
    return {at: {name: _best(scores[at, name], np.concatenate(members[at])) for name in _SUMMED} for at in levels}


def _best(scores: Mapping[float, list[Doubles]], inside: NDArray[np.bool_]) -> Calibration:
    found = []
    for penalty, parts in scores.items():
        values = np.concatenate(parts)
        ends = [(float(part.mean()), max(float(part.std()), 1e-6)) for part in (values[inside], values[~inside])]
        found.append(Calibration(penalty=penalty, inside=ends[0], outside=ends[1]))
    return max(found, key=lambda one: one.separation)


def candidate_updates(view: AttackerView, examples: Mapping[int, Examples], t: int, tag: str) -> Doubles:
    """Return an off-line update (U, d) of each user's ``examples`` in round t, defended where the adversary knows."""
    devices = [
        ShadowDevice(user_id=user, examples=held, round=t, tag=f"member-{tag}", defended=view.defences is not None)
        for user, held in examples.items()
    ]
    return shadow_updates(view, devices).values.astype(np.float64)


def final_loss(view: AttackerView, users: NDArray[np.int64]) -> Doubles:
    """Return the mean loss (U,) of the final released model on each user's prior."""
    params = dict(view.store.global_params(view.store.rounds))
    priors = {user.user_id: user.examples for user in view.prior_users}
    losses = []
    with torch.no_grad():
        for user in users.tolist():
            batch = {name: priors[user][name] for name in ("x", "y")}
            losses.append(float(torch.func.functional_call(view.model, params, (batch,)).mean()))
    return np.array(losses)
