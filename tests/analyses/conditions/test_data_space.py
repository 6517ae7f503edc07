from __future__ import annotations

from typing import TYPE_CHECKING

import analysis_cases as cases
import numpy as np
import pytest

from fedprint.analyses.conditions.data_space import DataSpace
from fedprint.analyses.trials import AnswerSet, QuestionSet, Trial
from fedprint.evaluation.judge import Setting, judge

if TYPE_CHECKING:
    from fedprint.lab.graph import Task

QUICK = DataSpace(most=8, sets=3, epochs=3)


@pytest.fixture(scope="module")
def asked(tiny_run: Task) -> tuple[QuestionSet, AnswerSet]:
    from fedprint.kinds.federation.stages.ask import facts_of

    (found,) = QUICK.ask(facts_of(tiny_run))
    return found


@pytest.fixture(scope="module")
def answered(tiny_run: Task) -> tuple[list[Trial], dict[str, AnswerSet]]:
    return cases.answered(tiny_run, QUICK)


def test_sets_hold_private_examples_of_their_owner_only(tiny_run: Task, asked: tuple[QuestionSet, AnswerSet]) -> None:
    from fedprint.kinds.federation.stages.ask import facts_of

    questions, answers = asked
    facts = facts_of(tiny_run)
    owned = {u.user_id: {row.numpy().tobytes() for row in u.examples["x"]} for u in facts.private}
    for members, size, user in zip(
        questions.facts["members"], questions.facts["size"], answers.users.tolist(), strict=True
    ):
        chosen = members[members >= 0]
        assert len(chosen) == len(set(chosen.tolist())) == min(size, len(owned[user]))
        assert {questions.facts["x"][i].tobytes() for i in chosen} <= owned[user]


def test_every_user_is_asked_about_equally_often_at_every_size(asked: tuple[QuestionSet, AnswerSet]) -> None:
    questions, answers = asked
    for size in (1, 2, 4, 8):
        _, counts = np.unique(answers.users[questions.facts["size"] == size], return_counts=True)
        assert counts.tolist() == [3] * 8


def test_neither_questions_nor_examples_come_in_the_order_of_users(asked: tuple[QuestionSet, AnswerSet]) -> None:
    questions, answers = asked
    assert (np.diff(answers.users) < 0).any()
    _, first = np.unique(questions.facts["members"][:, 0], return_index=True)
    by_first = answers.users[first]
    changes = (np.diff(by_first) != 0).mean()
    assert changes > 0.5


def test_the_comparison_has_every_size_and_the_update(answered: tuple[list[Trial], dict[str, AnswerSet]]) -> None:
    trials, answers = answered
    found = {(t.keys["space"], t.keys["attack"], t.keys["set_size"]) for t in trials}
    data = {("data", attack, size) for attack in ("network", "likelihood") for size in (1, 2, 4, 8)}
    assert found - data == {("update", trials[0].keys["attack"], None)}
    assert data < found
    for trial in trials:
        measured = judge(trial, answers[trial.questions], Setting(seed=0, resamples=200))
        assert {m.metric for m in measured} == {"ap", "top1", "ap_over_chance"}


def test_larger_sets_are_recognised_better(answered: tuple[list[Trial], dict[str, AnswerSet]]) -> None:
    trials, answers = answered
    ap = {t.keys["set_size"]: cases.ap(t, answers).value for t in trials if t.keys["attack"] == "likelihood"}
    assert ap[8] > ap[1]
