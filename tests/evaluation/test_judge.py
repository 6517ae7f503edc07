from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from fedprint.analyses.trials import UNSEEN, AnswerSet, Trial
from fedprint.evaluation.judge import Setting, judge
from fedprint.evaluation.statistics import weighted_auroc, weighted_tpr
from fedprint.types import FedprintError, Measurement

SETTING = Setting(seed=3, resamples=200)
OPTIONS = np.array([4, 7, 9, 12, 20])


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _users(questions: int = 90, options: Sequence[int] = OPTIONS.tolist()) -> AnswerSet:
    """Return the user behind each question."""
    owner = _rng(1).choice(options, size=questions)
    return AnswerSet(name="updates", answers=owner, users=owner)


def _scores(answers: np.ndarray, options: np.ndarray, signal: float = 1.0) -> np.ndarray:
    return signal * (answers[:, None] == options[None]) + _rng(2).normal(size=(len(answers), len(options)))


def _trial(answers: AnswerSet, *metrics: str, options: np.ndarray = OPTIONS, signal: float = 1.0) -> Trial:
    rows = np.arange(len(answers.answers))
    return Trial(
        questions=answers.name,
        rows=rows,
        options=options,
        scores=_scores(answers.answers, options, signal),
        keys={},
        metrics=metrics or ("ap",),
    )


def _one(trial: Trial, answers: AnswerSet) -> Measurement:
    (found,) = judge(trial, answers, SETTING)
    assert found.lo <= found.value <= found.hi
    assert found.lo < found.hi
    assert found.n_questions == len(trial.rows)
    assert found.n_users == len(np.unique(answers.users[trial.rows]))
    return found


def test_mean_ap_is_scikit_learns_averaged_over_users() -> None:
    answers = _users()
    trial = _trial(answers)
    expected = np.mean(
        [average_precision_score(answers.answers == user, trial.scores[:, i]) for i, user in enumerate(OPTIONS)]
    )
    found = _one(trial, answers)
    assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.chance is not None
    assert found.value > found.chance


def test_metrics_come_in_any_number_and_only_those_asked_for() -> None:
    answers = _users()
    found = judge(_trial(answers, "ap", "top1", "top5", "ap_over_chance"), answers, SETTING)
    by_metric = {m.metric: m for m in found}
    assert sorted(by_metric) == ["ap", "ap_over_chance", "top1", "top5"]
    best = OPTIONS[_scores(answers.answers, OPTIONS).argmax(1)]
    assert by_metric["top1"].value == pytest.approx((best == answers.answers).mean())
    assert by_metric["top5"].value == 1
    assert by_metric["ap_over_chance"].value == pytest.approx(by_metric["ap"].value / by_metric["ap"].chance)  # type: ignore[operator]


def test_rows_choose_the_questions() -> None:
    answers = _users()
    whole = _trial(answers)
    rows = np.array([5, 3, 80, 41, 17, 22, 60, 9])
    part = replace(whole, rows=rows, scores=whole.scores[rows])
    chosen = AnswerSet(name="updates", answers=answers.answers[rows], users=answers.users[rows])
    alone = replace(part, rows=np.arange(len(rows)))
    assert judge(part, answers, SETTING) == judge(alone, chosen, SETTING)


def test_pairs_are_scored_as_scikit_learn_does() -> None:
    users = np.repeat(np.arange(12), 6)
    same = _rng(4).integers(0, 2, size=len(users))
    scores = (same + _rng(5).normal(size=len(users)))[:, None].round(1)  # rounding makes ties
    answers = AnswerSet(name="pairs", answers=same, users=users)
    empty = np.zeros(0, dtype=np.int64)
    rows = np.arange(len(users))
    trial = Trial(questions="pairs", rows=rows, options=empty, scores=scores, keys={}, metrics=("matching_ap",))
    assert _one(trial, answers).value == pytest.approx(average_precision_score(same, scores[:, 0]), abs=1e-12)
    renamed = _one(replace(trial, metrics=("cross_modal_ap",)), answers)
    assert renamed.metric == "cross_modal_ap"


def test_attributes_are_scored_per_class_that_occurs() -> None:
    users = np.repeat(np.arange(20), 4)
    classes = np.array([0, 1, 2, 3])
    truth = (users % 3).astype(np.int64)  # class 3 never occurs
    answers = AnswerSet(name="style", answers=truth, users=users)
    trial = replace(_trial(answers, options=classes), metrics=("attribute_ap",))
    expected = np.mean([average_precision_score(truth == c, trial.scores[:, c]) for c in range(3)])
    assert _one(trial, answers).value == pytest.approx(expected, abs=1e-12)
    top = _one(replace(trial, metrics=("attribute_top1",)), answers)
    assert top.value == pytest.approx((trial.scores.argmax(1) == truth).mean())
    assert top.chance == 0.25


def _open_world(signal: float = 1.0) -> tuple[Trial, AnswerSet]:
    """Users 4, 7 and 9 are seen; 12 and 20 are not, and their answer is the option "unseen"."""
    users = _users().users
    answers = AnswerSet(name="open", answers=np.where(users < 10, users, UNSEEN), users=users)
    return _trial(answers, options=np.array([4, UNSEEN, 7, 9]), signal=signal), answers


def test_the_open_world_leaves_the_unseen_option_out_of_the_mean_ap() -> None:
    trial, answers = _open_world()
    expected = [
        average_precision_score(answers.answers == user, trial.scores[:, i]) for i, user in ((0, 4), (2, 7), (3, 9))
    ]
    assert _one(trial, answers).value == pytest.approx(np.mean(expected), abs=1e-12)


def test_an_ap_over_users_has_its_p_and_others_have_none() -> None:
    answers, setting = _users(), replace(SETTING, permutations=199)
    (named,) = judge(_trial(answers), answers, setting)
    (blind,) = judge(_trial(answers, signal=0.0), answers, setting)
    assert named.p_chance is not None and named.p_chance < 0.05 < (blind.p_chance or 0)
    several = replace(_trial(answers), scores=np.stack([_scores(answers.answers, OPTIONS)] * 2))
    assert judge(several, answers, setting)[0].p_chance == named.p_chance, "two equal trainings"
    classes = replace(answers, users=_rng(5).choice(np.arange(30, 40), size=90))
    assert judge(_trial(classes), classes, setting)[0].p_chance is None, "classes that users share"
    assert judge(_trial(answers), answers, SETTING)[0].p_chance is None


def test_unseen_users_are_detected_as_scikit_learn_measures_it() -> None:
    trial, answers = _open_world()
    unseen, scores = answers.answers == UNSEEN, trial.scores[:, 1]
    area = _one(replace(trial, metrics=("unseen_auroc",)), answers)
    assert area.value == pytest.approx(roc_auc_score(unseen, scores), abs=1e-12)
    assert area.chance == 0.5
    precision = _one(replace(trial, metrics=("unseen_ap",)), answers)
    assert precision.value == pytest.approx(average_precision_score(unseen, scores), abs=1e-12)


@pytest.mark.parametrize("metric", ["unseen_auroc", "unseen_ap"])
def test_detection_of_unseen_users_needs_that_option(metric: str) -> None:
    answers = _users()
    with pytest.raises(FedprintError, match="without the option 'unseen'"):
        judge(_trial(answers, metric), answers, SETTING)


def test_areas_under_weights_are_those_of_repeated_questions() -> None:
    scores = _rng(6).normal(size=40).round(1)
    positive = _rng(7).random(40) < 0.4
    weights = _rng(8).integers(0, 4, size=40)
    expected = roc_auc_score(np.repeat(positive, weights), np.repeat(scores, weights))
    assert weighted_auroc(scores, positive)(weights.astype(float)) == pytest.approx(expected, abs=1e-12)
    assert np.isnan(weighted_auroc(scores, np.ones(40, dtype=bool))(np.ones(40)))


def test_without_signal_the_interval_holds_chance() -> None:
    answers = _users(400)
    found = _one(_trial(answers, signal=0.0), answers)
    assert found.chance is not None
    assert found.lo <= found.chance <= found.hi


def test_an_answer_that_is_no_option_is_named() -> None:
    answers = _users()
    trial = replace(_trial(answers, options=OPTIONS[:4]), keys={"attack": "ridge"})
    with pytest.raises(FedprintError, match=r"'updates': the answer 20 is no option of the trial .*ridge"):
        judge(trial, answers, SETTING)


def test_an_unknown_metric_names_those_that_are_known() -> None:
    answers = _users()
    with pytest.raises(FedprintError, match=r"\['f1'\]; choose of .*'ap'.*'matching_ap'"):
        judge(_trial(answers, "ap", "f1"), answers, SETTING)


def test_equal_seeds_give_equal_intervals_and_other_seeds_others() -> None:
    trial, answers = _open_world()
    both = replace(trial, metrics=("ap", "unseen_auroc"))
    assert judge(both, answers, SETTING) == judge(both, answers, SETTING)
    other = judge(both, answers, replace(SETTING, seed=4))
    assert [m.value for m in other] == [m.value for m in judge(both, answers, SETTING)]
    assert [m.lo for m in other] != [m.lo for m in judge(both, answers, SETTING)]


# ---- membership ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0.05, 0.1, 0.3])
def test_found_at_few_false_alarms_is_the_roc_curves(most: float) -> None:
    rng = np.random.default_rng(0)
    positive = rng.random(200) < 0.4
    scores = np.round(rng.normal(size=200) + positive, 1)  # with ties
    weights = rng.integers(0, 3, 200).astype(float)
    for w in (np.ones(200), weights):
        fpr, tpr, _ = roc_curve(positive, scores, sample_weight=w, drop_intermediate=False)
        expected = tpr[fpr <= most + 1e-12].max()
        assert weighted_tpr(scores, positive, most)(w) == pytest.approx(expected)
    assert np.isnan(weighted_tpr(scores, positive, most)(positive.astype(float)))


def test_membership_of_random_scores_is_at_its_chance() -> None:
    rng = np.random.default_rng(3)
    users = np.arange(50)
    answers = AnswerSet(name="m", answers=(users < 25).astype(np.int64), users=users)
    found = []
    for _ in range(25):
        trial = Trial(
            questions="m", rows=users, options=np.zeros(0, dtype=np.int64), scores=rng.normal(size=(50, 1)), keys={},
            metrics=("membership_auc", "membership_tpr"),
        )  # fmt: skip
        found.append(judge(trial, answers, Setting(seed=0, resamples=200)))
    auc, tpr = (np.array([one[i].value for one in found]) for i in range(2))
    assert found[0][0].chance == 0.5 and found[0][1].chance == pytest.approx(2 / 26)
    assert abs(auc.mean() - 0.5) < 0.06 and abs(tpr.mean() - 2 / 26) < 0.06
    held = [one[0].lo <= 0.5 <= one[0].hi for one in found]
    assert np.mean(held) > 0.8
