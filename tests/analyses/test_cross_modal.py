from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from matching_cases import asked, desk, judged

from fedprint.analyses.cross_modal import CrossModal
from fedprint.analyses.trials import AnswerSet, QuestionSet, Trial
from fedprint.data.text_columns import CAPTION, encode_captions
from fedprint.kinds.federation.stages.ask import facts_of
from fedprint.lab.graph import Task
from fedprint.types import FedprintError, User

ANALYSIS = CrossModal(pairs=400, paired=0.75, attacks=("chance", "cross-modal", "cross-modal-strong"), dimensions=16)
Run = tuple[list[Trial], dict[str, AnswerSet], dict[str, QuestionSet]]


@pytest.fixture(scope="module")
def run(tiny_run: Task) -> Run:
    questions, answers = asked(tiny_run, ANALYSIS)
    return list(ANALYSIS.trials(desk(tiny_run, questions))), answers, questions


def test_pairs_are_a_users_texts_and_an_anonymous_update(run: Run, tiny_run: Task) -> None:
    facts = facts_of(tiny_run)
    index = facts.index.set_index("obs_id")
    owner = dict(zip(facts.index["obs_id"], facts.owner, strict=True))
    for name, questions in run[2].items():
        assert set(index["role"][questions.subjects[:, 1]]) == {"anonymous"}
        right = np.array([owner[obs] for obs in questions.subjects[:, 1]])
        np.testing.assert_array_equal(run[1][name].answers, questions.subjects[:, 0] == right)
        np.testing.assert_array_equal(run[1][name].users, right)
        assert run[1][name].answers.mean() == 0.5


def test_in_the_open_world_nobody_asked_about_is_paired(run: Run, tiny_run: Task) -> None:
    closed, opened = run[2]["cross-modal-closed"], run[2]["cross-modal-open"]
    users = set(facts_of(tiny_run).users)
    assert set(closed.facts["paired"]) == users
    assert len(opened.facts["paired"]) == 6
    assert set(opened.subjects[:, 0]) == users - set(opened.facts["paired"])
    assert not set(run[1]["cross-modal-open"].users) & set(opened.facts["paired"])


def test_every_matcher_answers_every_pair_in_both_worlds(run: Run) -> None:
    named = [(t.keys["world"], t.keys["attack"]) for t in run[0]]
    assert named == [(world, attack) for world in ("open", "closed") for attack in ANALYSIS.attacks]
    assert all(t.scores.shape == (400, 1) and np.isfinite(t.scores).all() for t in run[0])


def test_texts_betray_whose_updates_these_are_and_chance_does_not(run: Run) -> None:
    found = {
        attack: judged(run[0], run[1], world="closed", attack=attack)["cross_modal_ap"] for attack in ANALYSIS.attacks
    }
    assert abs(found["chance"].value - 0.5) < 0.08
    assert found["cross-modal-strong"].value > 0.65


def _without_updates(users: tuple[User, ...], paired: set[int]) -> tuple[User, ...]:
    """Return the users; those known by text only keep their captions, on pictures that show nothing."""

    def blank(examples: Any) -> dict[str, torch.Tensor]:
        return {**examples, "x": torch.zeros_like(examples["x"]), "y": torch.zeros_like(examples["y"])}

    return tuple(u if u.user_id in paired else replace(u, examples=blank(u.examples)) for u in users)


def test_of_people_known_by_text_only_nothing_but_text_is_used(run: Run, tiny_run: Task) -> None:
    analysis = ANALYSIS.model_copy(update={"worlds": ("open",)})
    bench = desk(tiny_run, run[2])
    paired = set(run[2]["cross-modal-open"].facts["paired"].tolist())
    view = replace(bench.view, prior_users=_without_updates(bench.view.prior_users, paired))
    for old, new in zip(run[0][:3], analysis.trials(replace(bench, view=view)), strict=True):
        np.testing.assert_allclose(old.scores, new.scores, atol=1e-6, err_msg=str(old.keys))


def test_other_texts_change_the_scores(run: Run, tiny_run: Task) -> None:
    analysis = ANALYSIS.model_copy(update={"worlds": ("open",), "attacks": ("cross-modal",)})
    bench = desk(tiny_run, run[2])
    users = tuple(
        replace(u, examples={**u.examples, CAPTION: encode_captions([f"word{u.user_id}"] * len(u.examples["y"]))})
        for u in bench.view.prior_users
    )
    (trial,) = analysis.trials(replace(bench, view=replace(bench.view, prior_users=users)))
    assert np.abs(trial.scores - run[0][1].scores).max() > 0.01


def test_data_without_captions_are_refused(tiny_run: Task) -> None:
    facts = facts_of(tiny_run)
    mute = tuple(
        replace(u, examples={name: column for name, column in u.examples.items() if name != CAPTION})
        for u in facts.prior
    )
    with pytest.raises(FedprintError, match="has no captions"):
        list(ANALYSIS.ask(replace(facts, prior=mute)))
