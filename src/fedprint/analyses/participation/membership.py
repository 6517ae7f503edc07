"""Did this client take part at all? For an adversary that sees raw updates, sums per round, or released models only.

Members and others differ only in what is asked: the anonymous devices of half of all users (``federation.absent``) do
not take part, while all prior devices take part and all priors are known. From sums and released models the adversary
first scores who took part in each round, as ``participation`` does. It learns the distributions of these scores for
members and for others from simulated rounds (sums.py), one for each sampling rate and noise, both public. Then it adds
up the likelihood ratios of the rounds. Where the server sees sums of groups, a member is in one of them.

Differential privacy promises more: even an adversary that knows every example of the device cannot see whether it took
part. So the analysis also evaluates an adversary with these examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedprint.analyses.base import SELECTED, Analysis, Bench, Facts
from fedprint.analyses.participation.cohorts import Participation
from fedprint.analyses.participation.sums import (
    SUMMED,
    Summed,
    calibrated,
    candidates_in,
    level,
    shared_directions,
    sums,
)
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial, binary_trial
from fedprint.attacks.reidentification.reidentify import pool
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import INPUTS, take
from fedprint.types import Doubles, Examples, FedprintError, Ints, User, View

USERS, ROUNDS = "membership", "membership-rounds"


class Membership(Analysis):
    """``membership``: did this user's anonymous device take part in the training, under each view?

    Metrics: ``membership_auc`` and ``membership_tpr`` (at 5 % false alarms) over users; ``participation_ap``, the
    average precision over pairs of user and round, of the scores that they are made of. Keys: ``view``; ``attack`` is
    the experiment's selected one under ``local``, ``candidates`` under the others, and ``loss``, of the final model on
    the user's prior, under ``central``. The adversary reads ``rounds`` of the training, evenly spread. ``knows`` says
    from which data candidates are made: each user's prior, or the ``data`` of the anonymous device itself (attack
    ``known-data``), which the questions then contain for members and others.
    """

    knows_defences: ClassVar[bool] = True

    name: Literal["membership"] = "membership"
    rounds: int = Field(default=20, ge=1)
    validation_rounds: int = Field(default=3, ge=1)
    knows: tuple[Literal["prior", "data"], ...] = Field(default=("prior", "data"), min_length=1)

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask about every user, and about every user in every round.

        Raises FedprintError where all users took part, or none: then there is nothing to distinguish.
        """
        users = np.array(facts.users, dtype=np.int64)
        answers = np.isin(users, facts.owner[facts.rows("anonymous")]).astype(np.int64)
        if len(set(answers.tolist())) < 2:
            who = "every" if answers.all() else "no"
            raise FedprintError(f"analyses.membership: {who} user took part; set federation.absent to 0.5, say")
        known = _examples_of(facts.private, users) if "data" in self.knows else {}
        asked = QuestionSet(name=USERS, kind="fits", subjects=users, facts=known)
        yield asked, AnswerSet(name=USERS, answers=answers, users=users)
        for pairs, truth in Participation(rounds=self.rounds).ask(facts):
            yield (
                QuestionSet(name=ROUNDS, kind="fits", subjects=pairs.subjects),
                AnswerSet(name=ROUNDS, answers=truth.answers, users=truth.users),
            )

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield two trials per view and kind of candidates, and one of the loss."""
        users = bench.questions[USERS].subjects
        pairs = bench.questions[ROUNDS].subjects
        rounds = np.unique(pairs[:, 0])
        position = {int(user): i for i, user in enumerate(users)}
        row = np.searchsorted(rounds, pairs[:, 0]), np.array([position[int(user)] for user in pairs[:, 1]])
        for attack, view, by_round, by_user in self._scores(bench, rounds.tolist(), users):
            yield _trial(ROUNDS, by_round[row], attack, view, ("participation_ap",))
            yield _trial(USERS, by_user, attack, view, ("membership_auc", "membership_tpr"))
        loss = final_loss(bench.view, users)
        yield _trial(USERS, -loss, "loss", "central", ("membership_auc", "membership_tpr"))

    def _scores(self, bench: Bench, rounds: list[int], users: Ints) -> Iterator[tuple[str, View, Doubles, Doubles]]:
        """Yield scores of each attack and view by round (T, U) and over all rounds (U,)."""
        yield bench.selected, "local", *from_updates(bench, rounds, users)
        seen = {(name, t): shown for t in rounds for name, shown in sums(bench.view, t).items()}
        shared = {t: shared_directions(bench.view, t) for t in rounds}
        for knows in self.knows:
            known = _known(bench) if knows == "data" else None
            for name, by_round, by_user in self._from_sums(bench, seen, shared, users, known):
                yield "candidates" if known is None else "known-data", name, by_round, by_user

    def _from_sums(
        self,
        bench: Bench,
        seen: Mapping[tuple[Summed, int], Doubles],
        shared: Mapping[int, Doubles],
        users: Ints,
        known: Mapping[int, Examples] | None,
    ) -> Iterator[tuple[Summed, Doubles, Doubles]]:
        view = bench.view
        levels = {(name, t): level(view, t, name, shown.shape[1]) for (name, t), shown in seen.items()}
        calibrations = calibrated(view, self.validation_rounds, dict.fromkeys(levels.values()), known=known is not None)
        order = [user.user_id for user in view.prior_users] if known is None else list(known)
        columns = [order.index(user) for user in users.tolist()]
        scores: dict[Summed, list[Doubles]] = {name: [] for name in SUMMED}
        ratios: dict[Summed, list[Doubles]] = {name: [] for name in SUMMED}
        for t, directions in shared.items():
            bench.progress(f"round {t}")
            candidates = candidates_in(view, t, directions, known)
            for name in SUMMED:
                at = levels[name, t]
                each = candidates.explain(seen[name, t], calibrations[at].penalty)[columns]
                scores[name].append(each.max(1))  # the score in the sum where it is highest
                ratios[name].append(calibrations[at].ratios(each, at.rate))
        for name in SUMMED:
            yield name, np.stack(scores[name]), np.sum(ratios[name], axis=0)


def _examples_of(private: Sequence[User], users: Ints) -> dict[str, NDArray[Any]]:
    """Return the raw examples of all anonymous devices, of absent ones too: ``x``, ``y``, ``owner``."""
    examples = {user.user_id: user.examples for user in private}
    parts = [examples[user] for user in users.tolist()]
    owner = np.repeat(users, [len(part["y"]) for part in parts])
    return {"owner": owner, **{name: torch.cat([part[name] for part in parts]).numpy() for name in INPUTS[:2]}}


def _known(bench: Bench) -> dict[int, Examples]:
    """Return these examples by user, as model input."""
    asked = bench.questions[USERS]
    examples = {name: torch.from_numpy(values) for name, values in asked.facts.items()}
    owner = examples.pop("owner")
    return {user: bench.ready(take(examples, owner == user)) for user in asked.subjects.tolist()}


def _trial(questions: str, scores: Doubles, attack: str, view: View, metrics: tuple[str, ...]) -> Trial:
    keys: dict[str, Key] = {"attack": attack, "view": view}
    if view == "local":  # from the recorded updates of prior devices, which are defended like all others
        keys["recipe"] = "recorded"
    return binary_trial(questions, scores, keys, metrics)


# ---- raw updates ---------------------------------------------------------------------------------------------------


def from_updates(bench: Bench, rounds: list[int], users: Ints) -> tuple[Doubles, Doubles]:
    """Return each user's score in the best update of each round (T, U), and in the best device of all (U,).

    By the experiment's selected attack, in nats; a round without anonymous updates has the lowest score for all users.
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


def final_loss(view: AttackerView, users: Ints) -> Doubles:
    """Return the mean loss (U,) of the final released model on each user's prior."""
    params = dict(view.store.global_params(view.store.rounds))
    priors = {user.user_id: user.examples for user in view.prior_users}
    losses = []
    with torch.no_grad():
        for user in users.tolist():
            batch = {name: priors[user][name] for name in ("x", "y")}
            losses.append(float(torch.func.functional_call(view.model, params, (batch,)).mean()))
    return np.array(losses)
