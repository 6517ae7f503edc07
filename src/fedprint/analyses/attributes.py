"""Attribute inference beside re-identification, each alone and both together (gradient-leaks, 6.1.3, table 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedprint.analyses.base import SELECTED, Analysis, Bench, Facts, restricted
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial
from fedprint.attacks.problem import Problem, among
from fedprint.attacks.reidentification.presets import Mlp
from fedprint.rng import torch_rng
from fedprint.types import FedprintError, Floats, Ints, Scores, User

Who = Literal["known", "new"]
Network = Literal["mlp", "mlp-std"]

METRICS = ("attribute_ap", "attribute_top1")
IDENTITY = ("ap", "top1")
GAINS = ("mtl_gain", "mtl_gain_ap")
USER, ATTRIBUTE = "user", "attribute"


class Attributes(Analysis):
    """``attributes``: infer every attribute of a user from an update; learn it alone, and together with identity.

    Attributes are those in which users differ (all, or those named). Keys: ``attribute``, ``attack``, ``heads``
    (stl: one network per task; mtl: one per attribute with two heads, ``attribute_weight`` times the attribute's loss
    beside the user's: the paper gives no weights), ``target`` (which head answers: attribute or user) and ``users``:

      * ``known`` (the paper's): the anonymous devices belong to the users of the prior. An adversary that recognises
        the user knows the attribute, so this is re-identification with fewer classes and does not show whether
        attributes leak.
    * ``new``: ``folds`` over users; for the anonymous updates of a fold the adversary has no data of that fold's users.
      Only this shows whether an attribute leaks. One seed.

    ``networks`` may be mlp (as published: on few updates it hardly learns) and mlp-std; they read the layers of the
    experiment's mlp. ``seeds`` trainings give the mean of stl and mtl rows, and the gain of mtl as a paired difference
    (evaluation/intervals.py). Strong attacks: ``ridge`` on classes, and ``posterior``: the selected re-identifier's,
    summed over the users of a class. ``majority`` names the commonest class.
    """

    name: Literal["attributes"] = "attributes"
    attributes: tuple[str, ...] | None = None
    users: tuple[Who, ...] = ("known", "new")
    networks: tuple[Network, ...] = ("mlp-std",)
    attribute_weight: float = Field(default=1.0, gt=0)
    seeds: int = Field(default=5, ge=1)
    folds: int = Field(default=5, ge=2)
    epochs: int = Field(default=100, ge=1)

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask the class of each anonymous update; facts: ``fold`` (q,), and ``folds`` (u, 2) with each user's fold."""
        from fedprint.attacks.descriptions.attribute import deal_folds

        rows = facts.rows("anonymous")
        owner, subjects = facts.owner[rows], facts.index["obs_id"].to_numpy(dtype=np.int64)[rows]
        for attribute in self.chosen(facts.private):
            known = classes_by_user(facts.private, attribute)
            users = np.array(sorted(known), dtype=np.int64)
            rng = torch_rng(facts.seed, self.name, attribute)
            fold = deal_folds(np.array([known[u] for u in users.tolist()]), min(self.folds, len(users)), rng)
            asked = np.isin(owner, users)
            senders = owner[asked]
            answers = np.array([known[u] for u in senders.tolist()], dtype=np.int64)
            facts_of_set = {"fold": fold[np.searchsorted(users, senders)], "folds": np.stack([users, fold], axis=1)}
            questions = QuestionSet(
                name=named(attribute), kind="attribute", subjects=subjects[asked], facts=facts_of_set
            )
            yield questions, AnswerSet(name=named(attribute), answers=answers, users=senders)

    def chosen(self, users: tuple[User, ...]) -> list[str]:
        """Return the attributes to infer. Raises FedprintError for one that users lack, or when there is none."""
        names = sorted({name for user in users for name in user.attributes})
        usable = [name for name in names if len(set(classes_by_user(users, name).values())) > 1]
        missing = sorted(set(self.attributes or ()) - set(usable))
        if missing or not usable:
            has = ", ".join(usable) or "none in which they differ"
            raise FedprintError(f"analyses.attributes: users have no attribute {missing or ''}; they have {has}")
        return [name for name in usable if self.attributes is None or name in self.attributes]

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield known users first: identity alone, then every attribute; then new users."""
        names = self.chosen(bench.view.prior_users)
        if "known" in self.users:
            yield from self._known(bench, names)
        if "new" in self.users:
            for attribute in names:
                yield from self._new(bench, attribute)

    def _known(self, bench: Bench, names: list[str]) -> Iterator[Trial]:
        alone = {network: self._identity_alone(bench, network) for network in self.networks}
        for network, tables in alone.items():
            yield _identity(bench, tables, {"attack": network, "heads": "stl", "attribute": None, "users": "known"})
        identity = bench.scores(SELECTED, bench.problem, self.name)
        for attribute in names:
            case = Case.of(bench, attribute)
            for attack, scores in self._strong(bench, case, identity):
                yield case.trial(scores, {"attack": attack, "heads": "stl", "users": "known"})
            for network in self.networks:
                bench.progress(f"{attribute}, {network}")
                yield from self._together(bench, case, network, alone[network])

    def _strong(self, bench: Bench, case: Case, identity: Scores) -> Iterator[tuple[str, Scores]]:
        from fedprint.attacks.descriptions.attribute import class_posterior, ridge_attribute

        known = case.columns_of_users
        yield "majority", case.majority(case.problem.labels, len(case.asked))
        yield "posterior", class_posterior(identity[case.asked][:, known], case.class_of[known], case.classes)
        rng = bench.rng(self.name, case.attribute, "ridge")
        yield "ridge", ridge_attribute(case.problem, case.columns, bench.work, rng)

    def _identity_alone(self, bench: Bench, network: Network) -> Scores:
        """Return log-probabilities of users (s, q, m) of the single-task network."""
        from fedprint.attacks.descriptions.attribute import Lesson, Task, fit_heads, held_rows
        from fedprint.attacks.learner import MlpSettings

        problem, x = bench.problem, self._inputs(bench, network, bench.problem)
        tables = []
        for seed in range(self.seeds):
            bench.progress(f"identity, {network}, seed {seed}")
            held = held_rows(len(problem.fit), bench.rng(self.name, network, seed, "held"))
            tasks = {USER: Task(labels=problem.labels, classes=problem.options)}
            lesson = Lesson(x=x[problem.fit], tasks=tasks, held=held, stop_on=(USER,))
            rng = bench.rng(self.name, network, seed)
            tables.append(fit_heads(lesson, x[problem.ask], MlpSettings(epochs=self.epochs), rng)[USER])
        return np.stack(tables)

    def _together(self, bench: Bench, case: Case, network: Network, alone: Scores) -> Iterator[Trial]:
        """Train the attribute alone and with the user, from equal seeds; yield both and the second's identity."""
        from fedprint.attacks.descriptions.attribute import held_rows

        x = self._inputs(bench, network, case.problem)
        singles, doubles, users = [], [], []
        for seed in range(self.seeds):
            held = held_rows(len(case.problem.fit), bench.rng(self.name, network, seed, "held"))
            single, double = self._both(bench, case, (x, held), (network, seed))
            singles.append(single[ATTRIBUTE])
            doubles.append(double[ATTRIBUTE])
            users.append(double[USER])
        keys: dict[str, Key] = {"attack": network, "users": "known"}
        stl, mtl = np.stack(singles), np.stack(doubles)
        yield case.trial(stl, {**keys, "heads": "stl"})
        yield case.trial(mtl, {**keys, "heads": "mtl"}, baseline=stl)
        # where some users lack the attribute, the questions differ from those of identity alone
        if len(case.asked) == len(bench.problem.ask):
            with_attribute = {**keys, "heads": "mtl", "attribute": case.attribute}
            yield _identity(bench, np.stack(users), with_attribute, baseline=alone)

    def _both(
        self,
        bench: Bench,
        case: Case,
        inputs: tuple[Floats, NDArray[np.bool_]],
        path: tuple[str, int],
        new: bool = False,
    ) -> tuple[dict[str, Scores], dict[str, Scores]]:
        """Return log-probabilities per head of the single-task and of the multi-task network.

        Where users are ``new``, both stop early on the attribute of other users, because identity cannot be tested
        there.
        """
        from fedprint.attacks.descriptions.attribute import Lesson, Task, fit_heads
        from fedprint.attacks.learner import MlpSettings

        x, held = inputs
        problem, settings = case.problem, MlpSettings(epochs=self.epochs)
        attribute = Task(labels=problem.labels, classes=case.classes)
        weighted = replace(attribute, weight=self.attribute_weight)
        user = Task(labels=case.columns, classes=len(bench.options))
        single = Lesson(x=x[problem.fit], tasks={ATTRIBUTE: attribute}, held=held, stop_on=(ATTRIBUTE,))
        stop_on = (ATTRIBUTE,) if new else (USER, ATTRIBUTE)
        double = replace(single, tasks={USER: user, ATTRIBUTE: weighted}, stop_on=stop_on)
        first, second = (
            fit_heads(lesson, x[problem.ask], settings, bench.rng(self.name, *path)) for lesson in (single, double)
        )
        return first, second

    def _new(self, bench: Bench, attribute: str) -> Iterator[Trial]:
        """Yield one trial per attack, its answers put together from all folds."""
        case = Case.of(bench, attribute)
        tables: dict[tuple[str, str], Scores] = {}
        for fold in np.unique(case.fold).tolist():
            bench.progress(f"{attribute}, new users, fold {fold}")
            rows = np.flatnonzero(case.fold == fold)
            for key, scores in self._of_fold(bench, case.without(fold, rows), fold):
                tables.setdefault(key, np.zeros((len(case.asked), case.classes)))[rows] = scores
        for (attack, heads), scores in tables.items():
            yield case.trial(scores, {"attack": attack, "heads": heads, "users": "new"})

    def _of_fold(self, bench: Bench, case: Case, fold: int) -> Iterator[tuple[tuple[str, str], Scores]]:
        from fedprint.attacks.descriptions.attribute import class_posterior, held_users, ridge_attribute

        path = (self.name, case.attribute, fold)
        yield ("majority", "stl"), case.majority(case.problem.labels, len(case.problem.ask))
        yield ("ridge", "stl"), ridge_attribute(case.problem, case.columns, bench.work, bench.rng(*path, "ridge"))
        known = np.unique(case.columns)
        others = replace(case.problem, labels=case.columns)
        identity = bench.scores(SELECTED, among(others, known.tolist(), case.problem.ask), *path)
        yield ("posterior", "stl"), class_posterior(identity, case.class_of[known], case.classes)
        for network in self.networks:
            x = self._inputs(bench, network, case.problem)
            held = held_users(case.columns, bench.rng(*path, network, "held"))
            single, double = self._both(bench, case, (x, held), (f"{case.attribute}-{fold}-{network}", 0), new=True)
            yield (network, "stl"), single[ATTRIBUTE]
            yield (network, "mtl"), double[ATTRIBUTE]

    def _inputs(self, bench: Bench, network: Network, problem: Problem) -> Floats:
        """Return the network's inputs (n, d), from the layers of the experiment's mlp."""
        published = bench.attacks.get("mlp")
        layers = published[0].layers if published and isinstance(published[0], Mlp) else None
        return Mlp(name=network, layers=layers).inputs(problem)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attribute as a problem: ``problem.labels`` (p,) and the answers are classes.

    ``columns`` (p,) are the senders of the fit rows as positions in the options, ``class_of`` (m,) the class of each
    option (-1: unknown), ``asked`` (q,) the positions of the questions among the bench's, ``fold`` (q,) their folds.
    """

    attribute: str
    problem: Problem
    columns: Ints
    class_of: Ints
    classes: int
    asked: Ints
    fold: Ints
    fold_of: Ints

    @classmethod
    def of(cls, bench: Bench, attribute: str) -> Case:
        """Return the problem of all users with the attribute."""
        known = classes_by_user(bench.view.prior_users, attribute)
        class_of = np.array([known.get(int(u), -1) for u in bench.options], dtype=np.int64)
        asked_set = bench.questions[named(attribute)]
        observed = bench.view.store.index["obs_id"].to_numpy(dtype=np.int64)[bench.problem.ask]
        asked = np.flatnonzero(np.isin(observed, asked_set.subjects))
        columns = bench.problem.labels
        learned = restricted(bench.problem, fit=class_of[columns] >= 0, ask=bench.problem.ask[asked])
        dealt = dict(asked_set.facts["folds"].tolist())
        return cls(
            attribute=attribute,
            problem=replace(learned, labels=class_of[learned.labels], options=int(class_of.max()) + 1),
            columns=learned.labels,
            class_of=class_of,
            classes=int(class_of.max()) + 1,
            asked=asked,
            fold=asked_set.facts["fold"],
            fold_of=np.array([dealt.get(int(u), -1) for u in bench.options], dtype=np.int64),
        )

    @cached_property
    def columns_of_users(self) -> Ints:
        """Options whose class is known."""
        return np.flatnonzero(self.class_of >= 0)

    def without(self, fold: int, rows: Ints) -> Case:
        """Return the problem of an adversary without data of a fold's users, with the questions ``rows``."""
        others = self.fold_of[self.columns] != fold
        problem = restricted(self.problem, fit=others, ask=self.problem.ask[rows])
        return replace(self, problem=problem, columns=self.columns[others], asked=self.asked[rows])

    def majority(self, labels: Ints, questions: int) -> Scores:
        """Return log shares of the classes among the fit rows' users, the same for each question: (q, classes)."""
        first = np.unique(self.columns, return_index=True)[1]
        counts = np.bincount(labels[first], minlength=self.classes) + 1e-3
        return np.tile(np.log(counts / counts.sum()), (questions, 1))

    def trial(self, scores: Scores, keys: dict[str, Key], baseline: Scores | None = None) -> Trial:
        """Return a trial on the attribute's questions."""
        return Trial(
            questions=named(self.attribute),
            rows=np.arange(len(self.asked)),
            options=np.arange(self.classes),
            scores=scores,
            keys={"attribute": self.attribute, "target": ATTRIBUTE, **keys},
            metrics=METRICS if baseline is None else (*METRICS, *GAINS),
            baseline=baseline,
        )


def _identity(bench: Bench, tables: Scores, keys: dict[str, Key], baseline: Scores | None = None) -> Trial:
    metrics = IDENTITY if baseline is None else (*IDENTITY, *GAINS)
    trial = bench.trial(bench.problem, tables, {"target": USER, **keys})
    return replace(trial, metrics=metrics, baseline=baseline)


def named(attribute: str) -> str:
    """Return the name of an attribute's question set."""
    return f"attribute-{attribute}"


def classes_by_user(users: tuple[User, ...], attribute: str) -> dict[int, int]:
    """Return user id -> class of the users who have the attribute."""
    return {user.user_id: int(user.attributes[attribute]) for user in users if attribute in user.attributes}
