from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matching_cases import asked, desk, judged

from fedprint.analyses.open_world import OpenWorld
from fedprint.analyses.trials import UNSEEN, AnswerSet, QuestionSet, Trial
from fedprint.kinds.federation.stages.ask import facts_of
from fedprint.lab.graph import Task
from fedprint.types import FedprintError

SHARES = (0.0, 0.5, 1.0)
ANALYSIS = OpenWorld(shares=SHARES, pairs=400, matchers=("chance", "siamese"))
Run = tuple[list[Trial], dict[str, AnswerSet], dict[str, QuestionSet]]


@pytest.fixture(scope="module")
def run(tiny_run: Task) -> Run:
    questions, answers = asked(tiny_run, ANALYSIS)
    return list(ANALYSIS.trials(desk(tiny_run, questions))), answers, questions


# Questions ------------------------------------------------------------------------------------------------------------


def test_what_is_asked_at_each_share(run: Run) -> None:
    assert set(run[2]) == {
        "open-all-0-0",
        "open-users-0-500", "open-unseen-0-500", "open-all-0-500",
        "open-users-0-1000", "open-all-0-1000",
    }  # fmt: skip


def test_a_third_is_held_out_and_never_asked_about(run: Run, tiny_run: Task) -> None:
    facts = facts_of(tiny_run)
    owner = dict(zip(facts.index["obs_id"], facts.owner, strict=True))
    for questions in run[2].values():
        holdout, seen = questions.facts["holdout"], questions.facts["seen"]
        assert len(holdout) == len(facts.users) // 3
        assert not set(holdout) & set(seen)
        assert not {owner[obs] for obs in questions.subjects.ravel()} & set(holdout)


def test_facts_never_tell_who_is_unseen(run: Run) -> None:
    assert {frozenset(questions.facts) for questions in run[2].values()} == {frozenset({"holdout", "seen"})}


def test_seen_users_grow_with_the_share(run: Run) -> None:
    assert [len(run[2][f"open-all-0-{share}"].facts["seen"]) for share in (0, 500, 1000)] == [0, 3, 6]
    assert np.isin(run[2]["open-all-0-500"].facts["seen"], run[2]["open-all-0-1000"].facts["seen"]).all()


def test_answers_are_seen_users_or_unseen(run: Run) -> None:
    answers, seen = run[1]["open-users-0-500"], run[2]["open-users-0-500"].facts["seen"]
    known = np.isin(answers.users, seen)
    np.testing.assert_array_equal(answers.answers[known], answers.users[known])
    assert set(answers.answers[~known]) == {UNSEEN}
    assert UNSEEN not in run[1]["open-users-0-1000"].answers


def test_the_subset_unseen_has_pairs_of_unseen_users_only(run: Run, tiny_run: Task) -> None:
    facts, questions = facts_of(tiny_run), run[2]["open-unseen-0-500"]
    owner = dict(zip(facts.index["obs_id"], facts.owner, strict=True))
    assert not {owner[obs] for obs in questions.subjects.ravel()} & set(questions.facts["seen"])


def test_few_users_are_refused(tiny_run: Task) -> None:
    facts = facts_of(tiny_run)
    with pytest.raises(FedprintError, match="5 users are too few"):
        list(ANALYSIS.ask(replace(facts, private=facts.private[:5])))


# Answers --------------------------------------------------------------------------------------------------------------


def test_there_is_a_trial_per_share_and_attack(run: Run) -> None:
    named = [(t.keys["seen_share"], t.keys["attack"], t.keys.get("subset")) for t in run[0]]
    pairs = ("chance", "siamese", "match-strong")
    users = ("knn", "open-strong")  # the tiny experiment has neither svm nor mlp
    expected = [(0.0, name, "all") for name in pairs]
    for share, subsets in ((0.5, ("unseen", "all")), (1.0, ("all",))):
        expected += [(share, name, None) for name in users]
        expected += [(share, name, subset) for name in pairs for subset in subsets]
    assert named == expected
    assert {t.keys["world"] for t in run[0]} == {"open"}


def test_the_strong_attacker_recognises_seen_users_and_strangers(run: Run) -> None:
    found = judged(run[0], run[1], attack="open-strong", seen_share=0.5)
    assert found["ap"].value > 1.5 * found["ap"].chance
    assert found["unseen_auroc"].value > 0.6
    everyone = judged(run[0], run[1], attack="open-strong", seen_share=1.0)
    assert set(everyone) == {"ap", "ap_over_chance", "top1"}


def test_matching_is_near_chance_for_chance_and_above_for_the_metric(run: Run) -> None:
    keys = {"seen_share": 0.5, "subset": "all"}
    chance, strong = (
        judged(run[0], run[1], attack=name, **keys)["matching_ap"].value for name in ("chance", "match-strong")
    )
    assert abs(chance - 0.5) < 0.1
    assert strong > 0.65


class Altered:
    """The store with other updates in some rows."""

    def __init__(self, store: Any, rows: np.ndarray) -> None:
        self._store, self._rows = store, rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def blocks(self, *args: Any, **kwargs: Any) -> Iterator[np.ndarray]:
        for block in self._store.blocks(*args, **kwargs):
            block[self._rows] = np.sin(1e3 * block[self._rows]) + 0.1
            yield block


def test_priors_of_unseen_users_are_never_used(run: Run, tiny_run: Task) -> None:
    """With other prior data and other prior updates of the unseen, every answer that does not ask about them stays."""
    analysis = OpenWorld(shares=(0.5,), pairs=400, matchers=("siamese",))
    questions, _ = asked(tiny_run, analysis)
    facts = facts_of(tiny_run)
    bench = desk(tiny_run, questions)
    known = questions["open-users-0-500"].facts
    unseen = np.setdiff1d(facts.users, np.concatenate([known["seen"], known["holdout"]]))
    rows = facts.rows("prior")[np.isin(facts.owner[facts.rows("prior")], unseen)]
    users = tuple(
        replace(user, examples={**user.examples, "x": user.examples["x"].flip(0)}) if user.user_id in unseen else user
        for user in bench.view.prior_users
    )
    view = replace(bench.view, store=Altered(bench.view.store, rows), prior_users=users)
    before, after = (list(analysis.trials(b)) for b in (bench, replace(bench, view=view)))
    obs = facts.index["obs_id"].to_numpy()[rows]
    compared = 0
    for old, new in zip(before, after, strict=True):
        subjects = questions[old.questions].subjects
        kept = ~np.isin(subjects, obs).reshape(len(subjects), -1).any(1)
        np.testing.assert_allclose(old.scores[kept], new.scores[kept], atol=1e-6, err_msg=str(old.keys))
        compared += int(kept.any())
    assert compared == 4  # knn, open-strong, and both matchers on "all"; "unseen" has no pair without them
