from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import analysis_cases as cases
import numpy as np
import pytest

from fedprint.analyses.attributes import Attributes, Case, classes_by_user, named
from fedprint.analyses.trials import Trial
from fedprint.evaluation.judge import Setting, judge
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from fedprint.lab.graph import Task

QUICK = Attributes(attributes=("age",), networks=("mlp-std",), seeds=2, folds=2, epochs=3)


@pytest.fixture(scope="module")
def answered(tiny_run: Task) -> tuple[list[Trial], dict]:
    return cases.answered(tiny_run, QUICK)


def test_every_condition_has_its_rows(answered: tuple[list[Trial], dict]) -> None:
    trials, answers = answered
    found = {(t.keys["users"], t.keys["attribute"], t.keys["attack"], t.keys["heads"], t.questions) for t in trials}
    ours = named("age")
    attacks = ("majority", "posterior", "ridge")
    strong = {(who, "age", attack, "stl", ours) for who in ("known", "new") for attack in attacks}
    networks = {(who, "age", "mlp-std", heads, ours) for who in ("known", "new") for heads in ("stl", "mtl")}
    identity = {("known", None, "mlp-std", "stl", "updates"), ("known", "age", "mlp-std", "mtl", "updates")}
    assert found == strong | networks | identity
    assert len(trials) == len(found)
    for trial in trials:
        assert judge(trial, answers[trial.questions], Setting(seed=0, resamples=200))


def test_gains_pair_the_same_questions_seed_by_seed(answered: tuple[list[Trial], dict]) -> None:
    trials, answers = answered
    wanted = [t for t in trials if t.questions == named("age") and t.keys["attack"] == "mlp-std"]
    by_heads = {t.keys["heads"]: t for t in wanted if t.keys["users"] == "known"}
    np.testing.assert_array_equal(by_heads["mtl"].baseline, by_heads["stl"].scores)
    assert by_heads["mtl"].scores.shape[0] == 2
    found = {m.metric: m.value for m in judge(by_heads["mtl"], answers[named("age")], Setting(seed=0, resamples=200))}
    plain = {m.metric: m.value for m in judge(by_heads["stl"], answers[named("age")], Setting(seed=0, resamples=200))}
    assert found["mtl_gain"] == pytest.approx(found["attribute_top1"] - plain["attribute_top1"])
    assert found["mtl_gain_ap"] == pytest.approx(found["attribute_ap"] - plain["attribute_ap"])


def test_questions_tell_folds_and_no_class(tiny_run: Task) -> None:
    from fedprint.kinds.federation.stages.ask import facts_of

    facts = facts_of(tiny_run)
    for questions, answers in Attributes(folds=4).ask(facts):
        known = classes_by_user(facts.private, questions.name.removeprefix("attribute-"))
        assert set(questions.facts) == {"fold", "folds"}
        assert [known[user] for user in answers.users.tolist()] == answers.answers.tolist()
        fold_of = dict(questions.facts["folds"].tolist())
        assert [fold_of[user] for user in answers.users.tolist()] == questions.facts["fold"].tolist()


def test_new_users_are_judged_without_any_of_their_prior_data(tiny_run: Task) -> None:
    """Labels of a fold's users turned round: the answers about that fold stay, those about the others do not."""
    from fedprint.kinds.federation.stages.ask import facts_of

    asked = [questions for questions, _ in QUICK.ask(facts_of(tiny_run))]
    bench = cases.bench(tiny_run, asked)
    fold_of = dict(asked[0].facts["folds"].tolist())
    turned = tuple(
        replace(u, attributes={"age": (u.attributes["age"] + 1) % 3}) if fold_of[u.user_id] == 0 else u
        for u in bench.view.prior_users
    )
    quick = QUICK.model_copy(update={"users": ("new",)})
    other = replace(bench, view=replace(bench.view, prior_users=turned))
    for here, there in zip(quick.trials(bench), quick.trials(other), strict=True):
        same = asked[0].facts["fold"] == 0
        np.testing.assert_array_equal(here.scores[same], there.scores[same])
        assert not np.array_equal(here.scores[~same], there.scores[~same])


def test_a_case_fits_on_no_row_of_the_fold(tiny_run: Task) -> None:
    from fedprint.kinds.federation.stages.ask import facts_of

    bench = cases.bench(tiny_run, [questions for questions, _ in QUICK.ask(facts_of(tiny_run))])
    case = Case.of(bench, "age")
    rows = np.flatnonzero(case.fold == 0)
    part = case.without(0, rows)
    users = bench.view.store.index["user_id"].to_numpy()[part.problem.fit].astype(int)
    assert {case.fold_of[np.searchsorted(bench.options, user)] for user in users} == {1}
    np.testing.assert_array_equal(bench.options[part.columns], users)


def test_an_attribute_that_nobody_has_is_an_error(tiny_run: Task) -> None:
    from fedprint.kinds.federation.stages.ask import facts_of

    facts = facts_of(tiny_run)
    with pytest.raises(FedprintError, match="age, glasses, hair"):
        list(Attributes(attributes=("height",)).ask(facts))
    bare = tuple(replace(user, attributes={}) for user in facts.private)
    with pytest.raises(FedprintError, match="none in which they differ"):
        list(Attributes().ask(replace(facts, private=bare)))
