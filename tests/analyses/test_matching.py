from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from matching_cases import asked, desk, judged

from fedprint.analyses.matching import Matching
from fedprint.analyses.trials import AnswerSet, QuestionSet, Trial
from fedprint.kinds.federation.stages.ask import facts_of
from fedprint.lab.graph import Task

Run = tuple[list[Trial], dict[str, AnswerSet], dict[str, QuestionSet]]


@pytest.fixture(scope="module")
def run(tiny_run: Task) -> Run:
    analysis = Matching(pairs=1000)
    questions, answers = asked(tiny_run, analysis)
    return list(analysis.trials(desk(tiny_run, questions))), answers, questions


def test_questions_are_pairs_without_answers(run: Run, tiny_run: Task) -> None:
    questions = run[2]["matching"]
    assert {field.name for field in fields(QuestionSet)} == {"name", "kind", "subjects", "facts"}
    assert questions.kind == "same"
    assert questions.facts == {}
    role = facts_of(tiny_run).index.set_index("obs_id")["role"]
    assert set(role[questions.subjects[:, 0]]) == {"prior"}
    assert set(role[questions.subjects[:, 1]]) == {"anonymous"}


def test_answers_are_right_and_balanced(run: Run, tiny_run: Task) -> None:
    facts, questions, answers = facts_of(tiny_run), run[2]["matching"], run[1]["matching"]
    owner = dict(zip(facts.index["obs_id"], facts.owner, strict=True))
    left, right = (np.array([owner[obs] for obs in column]) for column in questions.subjects.T)
    np.testing.assert_array_equal(answers.answers, left == right)
    np.testing.assert_array_equal(answers.users, right)
    assert answers.answers.mean() == 0.5


def test_every_matcher_answers_every_pair(run: Run) -> None:
    trials = run[0]
    named = [(t.keys["attack"], t.keys.get("linkage")) for t in trials]
    presets = [(name, None) for name in ("chance", "mlp-product", "siamese", "siamese-2", "match-strong")]
    assert named == [*presets, ("match-strong", "device")]
    assert all(t.scores.shape == (1000, 1) and np.isfinite(t.scores).all() for t in trials)
    assert {t.keys["world"] for t in trials} == {"closed"}


def test_chance_does_not_match_and_the_strong_matcher_does(run: Run) -> None:
    chance = judged(run[0], run[1], attack="chance")["matching_ap"]
    strong = judged(run[0], run[1], attack="match-strong", linkage=None)
    assert chance.lo < 0.5 < chance.hi
    assert strong["matching_ap"].lo > 0.6 > chance.hi


def test_prior_updates_of_other_users_do_not_match(tiny_run: Task) -> None:
    """Each prior update is replaced by one of the next user: what belonged together does not any more."""
    analysis = Matching(pairs=1000, attacks=("match-strong",))
    questions, answers = asked(tiny_run, analysis)
    facts = facts_of(tiny_run)
    owner = dict(zip(facts.index["obs_id"], facts.owner, strict=True))
    prior = facts.index["obs_id"].to_numpy()[facts.rows("prior")]
    users = np.unique(facts.owner[facts.rows("prior")])
    following = dict(zip(users, np.roll(users, 1).tolist(), strict=True))
    instead = {user: next(obs for obs in prior if owner[obs] == following[user]) for user in users}
    subjects = questions["matching"].subjects.copy()
    subjects[:, 0] = [instead[owner[obs]] for obs in subjects[:, 0]]
    asked_for_others = {"matching": replace(questions["matching"], subjects=subjects)}
    trials = list(analysis.trials(desk(tiny_run, asked_for_others)))
    assert judged(trials, answers, attack="match-strong", linkage="device")["matching_ap"].value < 0.55


def test_users_are_only_names(run: Run, tiny_run: Task) -> None:
    """Exchanging the names of all prior devices leaves every pair what it was."""
    bench = desk(tiny_run, run[2])
    users = list(bench.everyone.options)
    ring = dict(zip(users, np.roll(users, 1).tolist(), strict=True))
    renamed = replace(bench, view=bench.view.shuffled(ring))
    (strong, _) = Matching(pairs=1000, attacks=("match-strong",)).trials(renamed)
    assert np.corrcoef(strong.scores[:, 0], run[0][-2].scores[:, 0])[0, 1] > 0.9


def test_equal_seeds_give_equal_scores(run: Run, tiny_run: Task) -> None:
    analysis = Matching(pairs=1000, attacks=("siamese",))
    (again,) = analysis.trials(desk(tiny_run, run[2]))
    np.testing.assert_array_equal(again.scores, run[0][2].scores)
