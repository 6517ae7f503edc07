from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from analysis_cases import answered, ap, bench

from fedprint.analyses.conditions.users import Users, usual_sizes

if TYPE_CHECKING:
    from fedprint.lab.graph import Task


def test_usual_sizes_end_with_everybody() -> None:
    assert usual_sizes(35) == (10, 20, 30, 35)
    assert usual_sizes(10) == (10,)
    assert usual_sizes(580) == (10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 400, 580)


def test_subsets_are_nested_and_hold_exactly_their_users_updates(tiny_run: Task) -> None:
    from fedprint.kinds.federation.stages.ask import facts_of

    facts = facts_of(tiny_run)
    asked = {q.name: (q, a) for q, a in Users(sizes=(3, 6, 8), repeats=2).ask(facts)}
    assert sorted(asked) == ["users-00003-0", "users-00003-1", "users-00006-0", "users-00006-1", "users-00008-0"]
    for repeat in (0, 1):
        small, large = (set(asked[f"users-{n:05d}-{repeat}"][0].facts["users"].tolist()) for n in (3, 6))
        assert len(small) == 3
        assert small < large
    owner = dict(zip(facts.index["obs_id"], facts.owner, strict=True))
    rows = facts.rows("anonymous")
    for questions, answers in asked.values():
        named = set(questions.facts["users"].tolist())
        assert [owner[obs_id] for obs_id in questions.subjects] == answers.answers.tolist()
        assert len(questions.subjects) == sum(facts.owner[row] in named for row in rows)


def test_only_the_chosen_users_are_options(tiny_run: Task) -> None:
    trials, answers = answered(tiny_run, Users(attack="ridge", sizes=(3, 8), repeats=2))
    assert [trial.keys["options"] for trial in trials] == [3, 3, 8]
    for trial in trials:
        found = ap(trial, answers)
        assert trial.scores.shape == (found.n_questions, trial.keys["options"])
        assert set(answers[trial.questions].answers) <= set(trial.options)
        assert np.isfinite(trial.scores).all()


def test_all_users_are_the_closed_world(tiny_run: Task) -> None:
    (trial,), _ = answered(tiny_run, Users(attack="ridge", sizes=(8,), repeats=1))
    desk = bench(tiny_run)
    direct = desk.scores("ridge", desk.problem, "users", "x")
    np.testing.assert_allclose(trial.scores, direct, atol=1e-4)  # the tie-break differs
