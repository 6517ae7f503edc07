"""The open world: users without a prior take part (gradient-leaks, 6.1.2, figure 4; papers.md 2.2)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedprint.analyses.base import Analysis, Bench, Facts
from fedprint.analyses.matching import ask_pairs, pair_trial, paper_layers, rows_of
from fedprint.analyses.trials import UNSEEN, AnswerSet, Asked, Key, QuestionSet, Trial
from fedprint.attacks.matching.match import PRESETS, PairProblem, numpy_like
from fedprint.attacks.matching.metric import (
    Gram,
    MetricSettings,
    block_name,
    choose_metric,
    grams,
    similarity,
    taught_rows,
)
from fedprint.attacks.matching.open_set import ByMetric, ByRidge, World, answer_open, calibrate, folds_of
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.reidentify import Tuned, answer
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.rng import numpy_rng
from fedprint.types import FedprintError, Ints, Scores

Preset = Literal["knn", "svm", "mlp"]
Matcher = Literal["chance", "mlp-product", "siamese", "siamese-2"]
_PLAIN = Tuned(settings={}, temperature=1.0, log_loss=float("nan"))
"""The papers' presets have no settings; a temperature from all users' priors would use those of unseen users."""


class OpenWorld(Analysis):
    """``open-world``: re-identification with the answer "unseen", and matching, by the share of seen users.

    A third of the users is held out for training. Of the others a share ``seen_share`` is seen. The adversary has no
    prior of the rest and does not know who they are. It learns and chooses from seen and holdout users only.
    Keys: ``attack``, ``layers``, ``world``: open, ``seen_share``, ``split`` (which random division of users) and for
    matching ``subset``: pairs whose users are unseen, or all but the holdout.
    """

    name: Literal["open-world"] = "open-world"
    shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(default=(0.0, 0.25, 0.5, 0.75, 1.0), min_length=1)
    splits: int = Field(default=1, ge=1)
    pairs: int = Field(default=2000, ge=2)
    attacks: tuple[Preset, ...] = ("knn", "svm", "mlp")
    matchers: tuple[Matcher, ...] = ("mlp-product", "siamese")
    strong: bool = True
    layers: tuple[str, ...] | None = None

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask, per split and share, who sent each update of seen and unseen users, and about pairs of updates."""
        if len(facts.users) < 6:
            raise FedprintError(f"open-world: {len(facts.users)} users are too few; six make thirds of two")
        for split in range(self.splits):
            order = numpy_rng(facts.seed, self.name, split).permutation(facts.users)
            holdout, rest = np.sort(order[: len(order) // 3]), order[len(order) // 3 :]
            for share in self.shares:
                count = round(share * len(rest))
                division = Division(holdout=holdout, seen=np.sort(rest[:count]), unseen=np.sort(rest[count:]))
                if len(division.seen):
                    yield _ask_users(facts, _name("users", split, share), division)
                yield from self._ask_matches(facts, split, share, division)

    def _ask_matches(self, facts: Facts, split: int, share: float, division: Division) -> Iterator[Asked]:
        subsets = {"unseen": division.unseen, "all": np.concatenate([division.seen, division.unseen])}
        for subset, users in subsets.items():
            if len(users) < 2 or (subset == "unseen" and not len(division.seen)):
                continue
            prior, anonymous = (_of(facts, role, users) for role in ("prior", "anonymous"))
            name = _name(subset, split, share)
            questions, answers = ask_pairs(facts, name, prior, anonymous, self.pairs, numpy_rng(facts.seed, name))
            yield replace(questions, facts=division.facts), answers

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield the answers of the presets and of the strong attack to all questions."""
        for split in range(self.splits):
            strong: _Strong | None = None
            for share in self.shares:
                sets = {kind: bench.questions.get(_name(kind, split, share)) for kind in ("users", "unseen", "all")}
                known = _KnownUsers.at(bench, sets)
                strong = strong or (_Strong.choose(known) if self.strong else None)
                keys: dict[str, Key] = {"world": "open", "seen_share": share, "split": split}
                if sets["users"] is not None:
                    bench.progress(f"{share:.0%} seen, users")
                    yield from self._name_users(known, strong, sets["users"], keys)
                bench.progress(f"{share:.0%} seen, pairs")
                pairs = {kind: asked for kind, asked in sets.items() if asked is not None and kind != "users"}
                yield from self._match(known, strong, pairs, keys)

    def _match(
        self, known: _KnownUsers, strong: _Strong | None, sets: Mapping[str, QuestionSet], keys: Mapping[str, Key]
    ) -> Iterator[Trial]:
        """Answer the pairs of all subsets together, because the training is the same."""
        problem = known.pair_problem(np.concatenate([questions.subjects for questions in sets.values()]), self.layers)
        for name in self.matchers:
            rng = known.bench.rng(self.name, name, str(sorted(keys.items())))
            layers = None if name == "chance" else ",".join(problem.layers or ("all",))
            named: dict[str, Key] = {"attack": name, "layers": layers, **keys}
            try:
                scores = PRESETS[name](problem, rng)
            except FedprintError as error:  # a small share may have too little to learn from; the others still answer
                print(f"open-world {dict(keys)}: {name} left out: {error}", file=sys.stderr, flush=True)
                continue
            yield from _split(sets, scores, named)
        if strong is not None:
            named = {"attack": "match-strong", "layers": strong.settings.layers, **keys}
            yield from _split(sets, strong.match(known, problem), named)

    def _name_users(
        self, known: _KnownUsers, strong: _Strong | None, questions: QuestionSet, keys: Mapping[str, Key]
    ) -> Iterator[Trial]:
        bench = known.bench
        ask = rows_of(bench, questions.subjects)
        for name in (name for name in self.attacks if name in bench.attacks):
            attack = bench.attack(name)[0]
            problem = known.with_unseen_class(ask)
            scores = answer(attack, problem, _PLAIN, bench.work, bench.rng(questions.name, name)).scores
            layers = ",".join(getattr(attack, "layers", None) or ("all",))
            yield _trial(questions.name, known, scores, {"attack": name, "layers": layers, **keys})
        if strong is not None:
            scores, layers = strong.name_users(known, ask)
            yield _trial(questions.name, known, scores, {"attack": "open-strong", "layers": layers, **keys})


@dataclass(frozen=True, kw_only=True)
class Division:
    """User ids, ascending: ``holdout`` for training, ``seen`` with a prior, ``unseen`` without."""

    holdout: Ints
    seen: Ints
    unseen: Ints

    @property
    def facts(self) -> dict[str, Ints]:
        """The adversary's knowledge of the division: never who is unseen."""
        return {"holdout": self.holdout, "seen": self.seen}


def _name(kind: str, split: int, share: float) -> str:
    return f"open-{kind}-{split}-{round(1000 * share)}"


def _of(facts: Facts, role: str, users: Ints) -> Ints:
    rows = facts.rows(role)
    return rows[np.isin(facts.owner[rows], users)]


def _ask_users(facts: Facts, name: str, division: Division) -> Asked:
    rows = _of(facts, "anonymous", np.concatenate([division.seen, division.unseen]))
    users = facts.owner[rows]
    subjects = facts.index["obs_id"].to_numpy(dtype=np.int64)[rows]
    answers = np.where(np.isin(users, division.seen), users, UNSEEN)
    questions = QuestionSet(name=name, kind="user", subjects=subjects, facts=division.facts)
    return questions, AnswerSet(name=name, answers=answers, users=users)


def _split(sets: Mapping[str, QuestionSet], scores: Scores, keys: Mapping[str, Key]) -> Iterator[Trial]:
    ends = np.cumsum([len(questions.subjects) for questions in sets.values()])
    for (subset, questions), part in zip(sets.items(), np.split(scores, ends[:-1]), strict=True):
        yield pair_trial(questions.name, part, {**keys, "subset": subset})


@dataclass(frozen=True, kw_only=True)
class _KnownUsers:
    """The bench of an adversary that has a prior of seen and holdout users only."""

    bench: Bench
    facts: Mapping[str, Ints]

    @classmethod
    def at(cls, bench: Bench, sets: Mapping[str, QuestionSet | None]) -> _KnownUsers:
        """Return the bench with the known users that the questions of one share name."""
        questions = next((questions for questions in sets.values() if questions is not None), None)
        if questions is None:
            raise FedprintError("open-world: its questions are missing; run the stage ask with the same analyses")
        return cls(bench=bench, facts=questions.facts)

    @cached_property
    def world(self) -> World:
        """Seen and holdout users as labels: positions among all users."""
        seen, holdout = (np.searchsorted(self.bench.options, self.facts[name]) for name in ("seen", "holdout"))
        return World(seen=seen, holdout=holdout)

    @cached_property
    def prior(self) -> tuple[Ints, Ints]:
        """Rows of the store to learn from, and their labels (p,)."""
        problem = self.bench.problem
        kept = np.isin(problem.labels, self.world.known)
        if not kept.any():
            raise FedprintError("open-world: no prior update of a known user was recorded; train more rounds")
        return problem.fit[kept], problem.labels[kept]

    @property
    def threshold_path(self) -> tuple[object, ...]:
        """The path of the seed for the calibration."""
        return (OpenWorld.__name__, "threshold", *self.facts["seen"].tolist())

    @property
    def classes(self) -> Ints:
        """Labels of seen and holdout users, ascending."""
        return np.sort(self.world.known)

    def pair_problem(self, subjects: Ints, layers: tuple[str, ...] | None) -> PairProblem:
        """Return the papers' matching problem: one class per known user."""
        return PairProblem(
            updates=self.bench.view.store,
            fit=self.prior[0],
            labels=np.searchsorted(self.classes, self.prior[1]),
            pairs=rows_of(self.bench, subjects),
            options=len(self.classes),
            layers=paper_layers(self.bench) if layers is None else layers,
        )

    def with_unseen_class(self, ask: Ints) -> Problem:
        """Return the papers' problem: one class per seen user, and one last class of all holdout users."""
        fit, labels = self.prior
        position = {int(label): i for i, label in enumerate(self.world.seen)}
        classes = np.array([position.get(int(label), len(position)) for label in labels], dtype=np.int64)
        return Problem(updates=self.bench.view.store, fit=fit, labels=classes, ask=ask, options=len(position) + 1)

    def folds(self, labels: Ints) -> tuple[Validation, ...]:
        """Return the validation problems of some users."""
        return folds_of(self.bench.folds, labels)


@dataclass(frozen=True, kw_only=True)
class _Strong:
    """The learned metric, chosen on the holdout users; ``gram`` is its table over all prior updates.

    The table has columns of unseen users too, for the pairs that contain them; learning reads only known users.
    """

    settings: MetricSettings
    gram: Gram

    @classmethod
    def choose(cls, known: _KnownUsers) -> _Strong:
        bench = known.bench
        bench.progress("metric")
        rng = numpy_like(bench.rng(OpenWorld.__name__, "metric", *known.facts["holdout"].tolist()))
        settings = choose_metric(known.folds(known.world.holdout), rng, new_users=True)
        (_, gram), *_ = grams(bench.view.store, bench.problem.fit, [settings.block])
        return cls(settings=settings, gram=gram)

    def match(self, known: _KnownUsers, problem: PairProblem) -> Scores:
        """Return the similarity of pairs (q,)."""
        return similarity(self.gram, *known.prior, self.settings.shrinkage).of_pairs(problem.pairs)

    def name_users(self, known: _KnownUsers, ask: Ints) -> tuple[Scores, str]:
        """Return scores (q, seen + 1), the last one for "unseen", and the layers that were used.

        By the metric or by a ridge on known users: the better one on the known users' validation problems.
        """
        folds, work = known.folds(known.classes), Workspace(known.bench.view.device)
        (_, fold_gram), *_ = grams(folds[0].problem.updates, taught_rows(folds), [self.settings.block])
        ridge = Ridge().settings(folds, work)
        metric = ByMetric(gram=fold_gram, shrinkage=self.settings.shrinkage)
        linear = ByRidge(blocks=ridge["blocks"], penalty=ridge["penalty"], work=work)
        by_metric, by_ridge = (
            calibrate(folds, known.world, namer, numpy_like(known.bench.rng(*known.threshold_path)))
            for namer in (metric, linear)
        )
        problem = known.world.problem(known.bench.problem.updates, *known.prior, ask)
        if by_metric.log_loss < by_ridge.log_loss:
            scores = replace(metric, gram=self.gram).scores(problem)
            return answer_open(scores, len(known.world.seen), by_metric), self.settings.layers
        scores = replace(linear, work=known.bench.work).scores(problem)
        return answer_open(scores, len(known.world.seen), by_ridge), ",".join(map(block_name, linear.blocks))


def _trial(questions: str, known: _KnownUsers, scores: Scores, keys: Mapping[str, Key]) -> Trial:
    unseen = ("unseen_auroc", "unseen_ap") if keys["seen_share"] != 1.0 else ()
    return Trial(
        questions=questions,
        rows=np.arange(len(scores)),
        options=np.append(known.facts["seen"], UNSEEN),
        scores=scores,
        keys=keys,
        metrics=("ap", "ap_over_chance", "top1", *unseen),
    )
