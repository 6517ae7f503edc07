"""Who took part, when one sees sums or released models only (papers.md 5.2: views ``aggregate`` and ``central``).

Under secure aggregation the server sees sums of a cohort's updates; outside it one sees the global model of each
round, after the server's noise. In both cases the adversary takes away what its own devices sent, and explains the rest
by candidates: one off-line device per prior user, trained from the same global model. The weights of a ridge regression
of the rest on the candidates score who took part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedprint.analyses.base import Analysis, Bench, Facts
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial
from fedprint.attacks.shadow import ShadowDevice, cut_halves, shadow_updates, spread_rounds
from fedprint.attacks.view import AttackerView
from fedprint.params import flatten
from fedprint.rng import numpy_rng
from fedprint.types import Examples, View

Doubles = NDArray[np.float64]
QUESTIONS = "participation"
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""Of the candidates' mean square; the largest makes the weights plain inner products."""


class Participation(Analysis):
    """``participation``: did this user's anonymous device take part in this round? From sums and released models.

    ``rounds`` of the training are asked about, evenly spread. Metric: ``participation_ap``, the average precision over
    all pairs of user and round. Keys: ``attack`` (candidates), ``view`` (aggregate, central), ``cohort``. The penalty
    is chosen on sums of the priors' second halves, explained by their first halves.
    """

    knows_defences: ClassVar[bool] = True

    name: Literal["participation"] = "participation"
    rounds: int = Field(default=20, ge=1)
    validation_rounds: int = Field(default=3, ge=1)

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask about every user in every round."""
        last = int(facts.index["round"].max())
        rounds = np.unique(np.linspace(0, last, min(self.rounds, last + 1)).round().astype(np.int64))
        users = np.array(facts.users, dtype=np.int64)
        anonymous = (facts.index["role"] == "anonymous").to_numpy()
        took_part = set(zip(facts.index["round"].to_numpy()[anonymous], facts.owner[anonymous], strict=True))
        pairs = np.array([(t, user) for t in rounds for user in users], dtype=np.int64)
        answers = np.array([(t, user) in took_part for t, user in pairs.tolist()], dtype=np.int64)
        yield (
            QuestionSet(name=QUESTIONS, kind="fits", subjects=pairs),
            AnswerSet(name=QUESTIONS, answers=answers, users=pairs[:, 1]),
        )

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per view."""
        pairs = bench.questions[QUESTIONS].subjects
        rounds = np.unique(pairs[:, 0]).tolist()
        column = {user.user_id: i for i, user in enumerate(bench.view.prior_users)}
        penalty = choose_penalty(bench, self.validation_rounds)
        weights: dict[tuple[View, int], Doubles] = {}
        for t in rounds:
            bench.progress(f"round {t}")
            candidates = _candidates(bench.view, {u.user_id: u.examples for u in bench.view.prior_users}, t, "whole")
            central = rests(bench.view, t)["central"][:, None]
            seen: dict[View, Doubles] = {"aggregate": sums(bench.view, t), "central": central}
            for view, rest in seen.items():
                weights[view, t] = explain(rest, candidates, penalty).max(1)  # in the sum that shows the user best
        for view in ("aggregate", "central"):
            scores = np.array([weights[view, t][column[user]] for t, user in pairs.tolist()])
            keys: dict[str, Key] = {"attack": "candidates", "view": view, "cohort": bench.view.store.layout.cohort}
            yield Trial(
                questions=QUESTIONS,
                rows=np.arange(len(pairs)),
                options=np.zeros(0, dtype=np.int64),
                scores=scores[:, None],
                keys=keys,
                metrics=("participation_ap",),
            )


def rests(view: AttackerView, t: int) -> Mapping[View, Doubles]:
    """Return round t's sum of anonymous updates (d,) as each view shows it: example-weighted, own devices taken out.

    From single updates only their sum is used. How the server weights, divides and accelerates is public.
    """
    index, rule = view.store.index, view.rule
    rows = np.flatnonzero((index["round"] == t).to_numpy())
    weights = np.ones(len(rows)) if rule.equal else index["num_examples"].to_numpy(dtype=np.float64)[rows]
    total = weights.sum() if rule.divisors is None else rule.divisors[t]
    updates = view.store.matrix(rows=rows, dtype=np.float64)
    own = (index["role"].to_numpy()[rows] == "prior") * weights
    known = own @ updates
    return {"aggregate": weights @ updates - known, "central": total * _step(view, t) - known}


def sums(view: AttackerView, t: int) -> Doubles:
    """Return the sums of anonymous updates that the server sees in round t, in columns (d, n).

    Under secure aggregation of groups one for each, whose devices share a row; otherwise that of the whole round alone.
    """
    index = view.store.index
    rows = np.flatnonzero(((index["round"] == t) & (index["role"] == "anonymous")).to_numpy())
    groups: dict[bytes, list[int]] = {}
    updates = view.store.matrix(rows=rows, dtype=np.float64)
    for place, update in enumerate(updates):
        groups.setdefault(update.tobytes(), []).append(place)
    if len(groups) in (len(rows), 1):
        return rests(view, t)["aggregate"][:, None]
    weights = np.ones(len(rows)) if view.rule.equal else index["num_examples"].to_numpy(dtype=np.float64)[rows]
    return np.stack([weights[members] @ updates[members] for members in groups.values()], axis=1)


def _step(view: AttackerView, t: int) -> Doubles:
    """Return what round t's updates did to the global model (d,): its change, less the server's momentum."""
    moved = _change(view, t)
    return moved - view.rule.momentum * _change(view, t - 1) if t and view.rule.momentum else moved


def _change(view: AttackerView, t: int) -> Doubles:
    before, after = view.store.global_params(t), view.store.global_params(t + 1)
    change: Doubles = flatten({name: after[name] - before[name] for name in view.store.layers}).double().numpy()
    return change


def explain(rest: Doubles, candidates: Doubles, penalty: float) -> Doubles:
    """Return how much each candidate (U, d) explains of the rest (d,), at unit spread over candidates: (U,).

    Of several rests (d, n) at once: (U, n).
    """
    centred = candidates - candidates.mean(0)
    inner = centred @ centred.T
    inner[np.diag_indices_from(inner)] += penalty * np.trace(inner) / len(inner)
    weights: Doubles = np.linalg.solve(inner, centred @ rest)
    scaled: Doubles = weights / np.maximum(weights.std(0), 1e-30)
    return scaled


def choose_penalty(bench: Bench, rounds: int) -> float:
    """Return the penalty that finds the members of simulated cohorts best: sums of second halves of priors."""
    view = bench.view
    halves = cut_halves(view, view.prior_users)
    if len(halves) < 4:
        return PENALTIES[-1]
    groups = fmean(sums(view, t).shape[1] for t in spread_rounds(view, rounds))
    size = max(1, min(round(view.store.layout.cohort / 2 / groups), len(halves) // 2))
    rng = numpy_rng(view.seed, QUESTIONS, "cohorts")
    gaps = np.zeros(len(PENALTIES))
    for t in spread_rounds(view, rounds):
        # a defence draws anew for the second halves, as it did for the devices that are asked about
        first, second = (
            _candidates(view, {u: pair[side] for u, pair in halves.items()}, t, f"half-{side}") for side in (0, 1)
        )
        for _ in range(10):
            members = rng.permutation(len(halves))[:size]
            inside = np.zeros(len(halves), dtype=bool)
            inside[members] = True
            for i, penalty in enumerate(PENALTIES):
                scores = explain(second[inside].sum(0), first, penalty)
                gaps[i] += scores[inside].mean() - scores[~inside].mean()
    return PENALTIES[int(gaps.argmax())]


def _candidates(view: AttackerView, examples: Mapping[int, Examples], t: int, tag: str) -> Doubles:
    """Return an off-line update (U, d) of each user in round t, defended where the adversary knows how."""
    defended = view.defences is not None
    devices: Sequence[ShadowDevice] = [
        ShadowDevice(user_id=user, examples=found, round=t, tag=f"candidate-{tag}", defended=defended)
        for user, found in examples.items()
    ]
    return shadow_updates(view, devices).values.astype(np.float64)
