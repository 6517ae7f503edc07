from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedprint.analyses.trials import (
    AnswerSet,
    QuestionSet,
    Trial,
    load_answers,
    load_questions,
    load_trials,
    save_answers,
    save_questions,
    save_trials,
)
from fedprint.types import FedprintError

PAIRS = QuestionSet(
    name="pairs",
    kind="same",
    subjects=np.array([[1, 2], [3, 4]]),
    facts={"seen": np.array([5, 6]), "share": np.array(0.5)},
)
USERS = QuestionSet(name="updates", kind="user", subjects=np.array([8, 9, 10]))


def _trial(**keys: str | int | float | bool | None) -> Trial:
    scores = np.random.default_rng(0).normal(size=(3, 2))
    rows, options = np.array([2, 0, 1]), np.array([4, 7])
    return Trial(questions="updates", rows=rows, options=options, scores=scores, keys=keys, metrics=("ap", "top1"))


def test_questions_come_back_as_they_were(tmp_path: Path) -> None:
    save_questions(tmp_path, [USERS, PAIRS])
    found = load_questions(tmp_path)
    assert list(found) == ["pairs", "updates"]
    for asked in (USERS, PAIRS):
        back = found[asked.name]
        assert (back.name, back.kind) == (asked.name, asked.kind)
        np.testing.assert_array_equal(back.subjects, asked.subjects)
        assert set(back.facts) == set(asked.facts)
        for name, fact in asked.facts.items():
            np.testing.assert_array_equal(back.facts[name], fact)


def test_equal_questions_give_equal_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        save_questions(folder, [PAIRS])
    assert (first / "pairs.npz").read_bytes() == (second / "pairs.npz").read_bytes()


def test_answers_come_back_as_they_were(tmp_path: Path) -> None:
    answers = AnswerSet(name="pairs", answers=np.array([1, 0]), users=np.array([3, 4]))
    save_answers(tmp_path, [answers])
    (found,) = load_answers(tmp_path).values()
    assert found.name == "pairs"
    np.testing.assert_array_equal(found.answers, answers.answers)
    np.testing.assert_array_equal(found.users, answers.users)


def test_trials_come_back_with_the_name_of_their_analysis(tmp_path: Path) -> None:
    trials = [_trial(attack="ridge", share=0.5, paired=True, nothing=None), _trial(attack="knn", k=3)]
    assert save_trials(tmp_path, "some-analysis", trials) == 2
    found = list(load_trials(tmp_path))
    assert [t.keys for t in found] == [{"analysis": "some-analysis", **t.keys} for t in trials]
    for back, trial in zip(found, trials, strict=True):
        assert (back.questions, back.metrics) == (trial.questions, trial.metrics)
        for name in ("rows", "options", "scores"):
            np.testing.assert_array_equal(getattr(back, name), getattr(trial, name))
            assert getattr(back, name).dtype == getattr(trial, name).dtype


def test_an_analysis_without_trials_is_no_error(tmp_path: Path) -> None:
    assert save_trials(tmp_path, "exhibit-only", []) == 0
    assert list(load_trials(tmp_path)) == []


def test_missing_trials_name_the_stage(tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match="is missing; run the stage analyse"):
        list(load_trials(tmp_path / "nowhere"))


@pytest.mark.parametrize("kept", [0, 10, 200])
def test_a_damaged_file_is_named(tmp_path: Path, kept: int) -> None:
    save_questions(tmp_path, [USERS])
    path = tmp_path / "updates.npz"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(FedprintError, match=r"updates\.npz: cannot be read .*run the stage that makes it again"):
        load_questions(tmp_path)
