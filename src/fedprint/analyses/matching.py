"""Matching: is an anonymous update from the user of a given prior update (gradient-leaks, table 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import log_softmax

from fedprint.analyses.base import Analysis, Bench, Facts
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial
from fedprint.attacks.matching.match import PRESETS, PairProblem, numpy_like
from fedprint.attacks.matching.metric import choose_metric, choose_temperature, learn
from fedprint.attacks.matching.pairs import balanced_pairs
from fedprint.rng import numpy_rng
from fedprint.types import Ints, Scores

Matcher = Literal["chance", "mlp-product", "siamese", "siamese-2", "match-strong"]
QUESTIONS = "matching"


class Matching(Analysis):
    """``matching``: AP over balanced pairs (prior update, anonymous update) in the closed world.

    Keys: ``attack``, ``layers``, ``world``, ``linkage`` (``device``: the strong matcher's scores averaged over the
    rounds of both devices, for the same pairs). ``layers`` is where the papers' presets look: by default the layers of
    the experiment's attack ``mlp``.
    """

    name: Literal["matching"] = "matching"
    pairs: int = Field(default=4000, ge=2)
    attacks: tuple[Matcher, ...] = Field(default=get_args(Matcher), min_length=1)
    layers: tuple[str, ...] | None = None

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask balanced pairs."""
        rng = numpy_rng(facts.seed, self.name)
        yield ask_pairs(facts, QUESTIONS, facts.rows("prior"), facts.rows("anonymous"), self.pairs, rng)

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per matcher, two for the strong one where devices can be linked."""
        problem = pair_problem(bench, bench.questions[QUESTIONS], self.layers)
        for name in self.attacks:
            bench.progress(name)
            if name == "match-strong":
                yield from _strong(bench, problem)
            else:
                yield preset_trial(bench, QUESTIONS, name, problem, {"world": "closed"})


def ask_pairs(facts: Facts, name: str, left: Ints, right: Ints, n: int, rng: np.random.Generator) -> Asked:
    """Ask of ``n`` balanced pairs of observations in ``left`` (a,) and ``right`` (b,) whether they are one user's."""
    places, same = balanced_pairs(facts.owner[left], facts.owner[right], n, rng)
    rows = np.stack([left[places[:, 0]], right[places[:, 1]]], axis=1)
    questions = QuestionSet(name=name, kind="same", subjects=facts.index["obs_id"].to_numpy(dtype=np.int64)[rows])
    return questions, AnswerSet(name=name, answers=same.astype(np.int64), users=facts.owner[rows[:, 1]])


def pair_problem(bench: Bench, questions: QuestionSet, layers: tuple[str, ...] | None) -> PairProblem:
    """Return the pairs as rows of the store, and all prior updates to learn from."""
    return PairProblem(
        updates=bench.view.store,
        fit=bench.problem.fit,
        labels=bench.problem.labels,
        pairs=rows_of(bench, questions.subjects),
        options=bench.problem.options,
        layers=paper_layers(bench) if layers is None else layers,
    )


def rows_of(bench: Bench, subjects: Ints) -> Ints:
    """Return the rows of the store of observations; the same shape."""
    place = {int(obs_id): row for row, obs_id in enumerate(bench.view.store.index["obs_id"])}
    rows = np.array([place[int(obs_id)] for obs_id in subjects.ravel()], dtype=np.int64)
    return rows.reshape(subjects.shape)


def paper_layers(bench: Bench) -> tuple[str, ...] | None:
    """Return the layers of the experiment's attack ``mlp``, the papers' choice; all (None) without one."""
    layers: tuple[str, ...] | None = (
        getattr(bench.attacks["mlp"][0], "layers", None) if "mlp" in bench.attacks else None
    )
    return layers


def preset_trial(bench: Bench, questions: str, name: str, problem: PairProblem, keys: Mapping[str, Key]) -> Trial:
    """Answer all pairs with one of the papers' presets."""
    scores = PRESETS[name](problem, bench.rng(questions, name))
    layers = None if name == "chance" else ",".join(problem.layers or ("all",))
    return pair_trial(questions, scores, {"attack": name, "layers": layers, **keys})


def pair_trial(questions: str, scores: Scores, keys: Mapping[str, Key]) -> Trial:
    """Return the trial on all pairs of a question set."""
    return Trial(
        questions=questions,
        rows=np.arange(len(scores)),
        options=np.zeros(0, dtype=np.int64),
        scores=scores[:, None],
        keys=keys,
        metrics=("matching_ap",),
    )


def _strong(bench: Bench, problem: PairProblem) -> Iterator[Trial]:
    """The adversary runs the prior device: it asks how likely that user is, given the anonymous update."""
    settings = choose_metric(bench.folds, numpy_like(bench.rng(QUESTIONS, "match-strong")), new_users=False)
    temperature = choose_temperature(bench.folds, settings)
    learned = learn(problem.updates, problem.fit, problem.fit, problem.labels, settings)
    nearness, present = learned.of_classes()
    log_p = log_softmax(temperature * nearness, axis=1)
    label = dict(zip(problem.fit.tolist(), problem.labels.tolist(), strict=True))
    column = np.searchsorted(present, [label[row] for row in problem.pairs[:, 0].tolist()])
    keys = {"attack": "match-strong", "layers": settings.layers, "world": "closed"}
    yield pair_trial(QUESTIONS, log_p[problem.pairs[:, 1], column], keys)
    senders = bench.view.store.index["pseudonym"]
    if senders.notna().all():
        pooled = mean_by(log_p, senders.to_numpy())
        yield pair_trial(QUESTIONS, pooled[problem.pairs[:, 1], column], {**keys, "linkage": "device"})


def mean_by(scores: Scores, senders: NDArray[Any]) -> Scores:
    """Replace each row of scores (n, m) by the mean over the rows of its sender (n,)."""
    _, place = np.unique(senders, return_inverse=True)
    totals = np.zeros((place.max() + 1, scores.shape[1]))
    np.add.at(totals, place, scores)
    means: Scores = (totals / np.bincount(place)[:, None])[place]
    return means
