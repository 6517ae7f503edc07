"""An adversary that knows the view validates on sums; one that knows the background knows the added data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedprint.attacks.adversary import adversaries as adversary
from fedprint.attacks.adversary.adversaries import Effort, TrainingMix, train_shadows, training_mixes
from fedprint.attacks.view import AttackerView
from fedprint.defences.on_data import RandAug
from fedprint.defences.points import Defence
from fedprint.defences.secure_aggregation import SecureAggregation
from fedprint.kinds.federation.building.view import open_view
from fedprint.lab.graph import Task
from fedprint.types import Questions

EFFORT = Effort(clean_rounds=4, defended_rounds=2, draws=1, validation_rounds=2)


def knowing(job: Task, defence: Defence) -> tuple[AttackerView, Questions]:
    view, questions = open_view(job, "naive")
    return replace(view, defences=(defence,)), questions


def learnt(view: AttackerView, questions: Questions) -> dict[str, TrainingMix]:
    devices = train_shadows(view, questions, EFFORT)
    return {mix.name: mix for mix in training_mixes("adaptive", view, questions, devices)}


def test_under_secure_aggregation_it_validates_on_sums(tiny_run: Task) -> None:
    """A cohort of 8 is one group, of which 4 devices are anonymous: so are the sums that are asked about."""
    view, questions = knowing(tiny_run, SecureAggregation())
    found, users = learnt(view, questions), len(view.prior_users)
    for mix in found.values():
        for fold in mix.comparison:
            rows = np.concatenate(list(fold.problem.updates.blocks()), axis=1)[fold.problem.ask]
            _, members = np.unique(rows, axis=0, return_counts=True)
            assert len(rows) == len(fold.answers) == users * EFFORT.draws * EFFORT.validation_rounds // 2
            assert set(members.tolist()) == {4}
    single, summed = (found["defended"].folds[side].problem for side in (0, 1))
    table = np.concatenate(list(single.updates.blocks()), axis=1).astype(np.float64)
    np.testing.assert_allclose(table[summed.ask].mean(0), table[single.fit].mean(0), atol=1e-6)


def test_groups_of_one_are_validated_as_single_updates(tiny_run: Task) -> None:
    mix = learnt(*knowing(tiny_run, SecureAggregation(size=1)))["both"]
    rows = np.concatenate(list(mix.folds[0].problem.updates.blocks()), axis=1)[mix.folds[0].problem.ask]
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_background_users_span_the_nuisance_where_there_are_enough_of_them(
    tiny_run: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, _ = knowing(tiny_run, RandAug(alpha=1))
    monkeypatch.setattr(adversary, "NUISANCE_SETS", len(view.background))
    found = list(adversary._nuisance(view))
    assert len(found) == adversary.NUISANCE_ROUNDS * len(view.background)
    for (device, side), user in zip(found, 2 * view.background, strict=True):
        mine = {tuple(x.flatten().tolist()) for x in user.examples["x"]}
        assert side == -1 and {tuple(x.flatten().tolist()) for x in device.examples["x"]} <= mine
