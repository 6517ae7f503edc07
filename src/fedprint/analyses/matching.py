"""Matching: is an anonymous update from the user of a given prior update (gradient-leaks, table 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

import numpy as np
from pydantic import Field
from scipy.special import log_softmax

from fedprint.analyses.base import Analysis, Bench, Facts
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial, binary_trial
from fedprint.attacks.matching.match import PRESETS, PairProblem, numpy_like
from fedprint.attacks.matching.metric import choose_metric, choose_temperature, learn
from fedprint.attacks.matching.pairs import balanced_pairs
from fedprint.attacks.reidentification.reidentify import mean_by_sender
from fedprint.rng import numpy_rng
from fedprint.types import Ints, Scores

Matcher = Literal["chance", "mlp-product", "siamese", "siamese-2", "match-strong"]
QUESTIONS = "matching"


class Matching(Analysis):
    """``matching``: AP over balanced pairs (prior update, anonymous update) in the closed world.

    Keys: ``attack``, ``layers``, ``world``, ``linkage`` (``device``: the strong matcher's scores averaged over the
    rounds of both devices, for the same pairs). ``layers`` are what the papers' presets read: by default the layers of
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
    pairs, same = balanced_pairs(facts.owner[left], facts.owner[right], n, rng)
    rows = np.stack([left[pairs[:, 0]], right[pairs[:, 1]]], axis=1)
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
    """Return the rows of the store that hold the observations, in the same shape."""
    row_of = {int(obs_id): row for row, obs_id in enumerate(bench.view.store.index["obs_id"])}
    rows = np.array([row_of[int(obs_id)] for obs_id in subjects.ravel()], dtype=np.int64)
    return rows.reshape(subjects.shape)


def paper_layers(bench: Bench) -> tuple[str, ...] | None:
    """Return the layers of the experiment's attack ``mlp``, the papers' choice; all (None) without one."""
    layers: tuple[str, ...] | None = (
        getattr(bench.attacks["mlp"][0], "layers", None) if "mlp" in bench.attacks else None
    )
    return layers


def preset_trial(bench: Bench, questions: str, name: str, problem: PairProblem, keys: Mapping[str, Key]) -> Trial:
    """Return the answers of one of the papers' presets to all pairs."""
    scores = PRESETS[name](problem, bench.rng(questions, name))
    layers = None if name == "chance" else ",".join(problem.layers or ("all",))
    return pair_trial(questions, scores, {"attack": name, "layers": layers, **keys})


def pair_trial(questions: str, scores: Scores, keys: Mapping[str, Key]) -> Trial:
    """Return the trial on all pairs of a question set."""
    return binary_trial(questions, scores, keys, ("matching_ap",))


def _strong(bench: Bench, problem: PairProblem) -> Iterator[Trial]:
    """Yield the strong matcher: the adversary knows the prior device's user, and scores this user for the update."""
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
        names, sender = np.unique(senders.to_numpy(dtype=str), return_inverse=True)
        pooled = mean_by_sender(log_p, senders.tolist(), names.tolist())[sender]
        yield pair_trial(QUESTIONS, pooled[problem.pairs[:, 1], column], {**keys, "linkage": "device"})
