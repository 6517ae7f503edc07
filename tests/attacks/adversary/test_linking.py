"""Joining the updates of a device: by their scores or by their mean, as shadow validation prefers."""

from __future__ import annotations

from dataclasses import replace

import attack_cases as cases
import numpy as np
import pytest
import torch

from fedprint.attacks.adversary.adversaries import Choice, TrainingMix
from fedprint.attacks.adversary.linking import Linking, link
from fedprint.attacks.problem import NO_MODE, Modes
from fedprint.attacks.reidentification.linked import KNOWN_MEANS, Means, averaged, averaged_validations, linked_parts
from fedprint.attacks.reidentification.reidentify import tune
from fedprint.attacks.reidentification.ridge import Ridge, RidgeOfMeans
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.ranking import average_precision

SENDERS = ["b", "a", "b", "a", "b", "a", "a", "c"]
ROUNDS = [0, 3, 1, 2, 2, 1, 0, 5]

RIDGE = Ridge()


def test_parts_are_of_one_sender_in_order_of_time() -> None:
    parts = linked_parts(SENDERS, ROUNDS, 2)
    assert [[(SENDERS[i], ROUNDS[i]) for i in part] for part in parts] == [
        [("a", 0), ("a", 1)],
        [("a", 2), ("a", 3)],
        [("b", 0), ("b", 1)],
    ]


def test_one_update_at_a_time_is_every_update() -> None:
    assert sorted(linked_parts(SENDERS, ROUNDS, 1)[:, 0].tolist()) == list(range(len(SENDERS)))


def test_where_most_devices_sent_fewer_nothing_is_asked() -> None:
    assert len(linked_parts(SENDERS, ROUNDS, 3)) == 2
    assert linked_parts(SENDERS, ROUNDS, 4).shape == (0, 4), "one of three devices sent four"
    assert len(linked_parts(["a"] * 9, np.arange(9).tolist(), 3)) == 0, "one device has no others to be taken for"


def test_rows_of_means_are_the_means_of_rows() -> None:
    updates = cases.planted(1.0)
    groups = (np.array([3, 1, 7]), np.array([0]), np.array([5, 5]))
    means = Means(updates=updates, groups=groups)
    expected = np.array([updates.values[group].mean(0) for group in groups])
    whole = np.concatenate(list(means.blocks(columns=7)), axis=1)
    np.testing.assert_allclose(whole, expected, rtol=1e-6)
    some = np.concatenate(list(means.blocks(["head"], np.array([2, 0]), columns=5)), axis=1)
    np.testing.assert_allclose(some, expected[[2, 0], 36:], rtol=1e-6)


def test_the_averaged_problem_asks_for_parts_and_learns_from_means_of_users() -> None:
    problem = cases.problem(cases.planted(1.0))
    parts = [np.array([0, 2]), np.array([9])]
    (mean,) = averaged([(problem, parts)])
    assert mean.labels.tolist() == np.repeat(np.arange(cases.USERS), KNOWN_MEANS).tolist()
    assert isinstance(mean.updates, Means)
    groups = mean.updates.groups
    assert [groups[row].tolist() for row in mean.ask] == [problem.ask[part].tolist() for part in parts]
    learnt = np.concatenate([groups[row] for row in mean.fit])
    assert sorted(learnt.tolist()) == problem.fit.tolist(), "every known update once"
    for row, label in zip(mean.fit, mean.labels, strict=True):
        assert set(problem.labels[groups[row]]) == {label}
    (fold,) = averaged_validations([cases.validation(1.0)[0]])
    assert fold.answers.tolist() == list(range(cases.USERS)) and len(fold.problem.ask) == cases.USERS


def test_problems_that_ask_for_the_same_rows_share_a_table_of_means() -> None:
    problem, parts = cases.problem(cases.planted(1.0)), [np.array([0, 2]), np.array([9]), np.array([0, 2])]
    fewer = problem.without(problem.fit[::3])
    elsewhere = replace(problem, ask=problem.ask[1:])
    made = averaged([(problem, parts), (fewer, parts), (elsewhere, parts)])
    assert made[0].updates is made[1].updates and made[0].updates is not made[2].updates
    assert made[0].ask[0] == made[0].ask[2], "a part that is asked for twice is one row"
    for mean, one in zip(made, (problem, fewer, elsewhere), strict=True):
        (alone,) = averaged([(one, parts)])
        assert isinstance(mean.updates, Means) and isinstance(alone.updates, Means)
        for rows, expected in ((mean.fit, alone.fit), (mean.ask, alone.ask)):
            groups = [mean.updates.groups[row].tolist() for row in rows]
            assert groups == [alone.updates.groups[row].tolist() for row in expected]
        assert mean.labels.tolist() == alone.labels.tolist()


def _found(signal: float, draw: float, attack: Ridge = RIDGE) -> tuple[Linking, np.ndarray]:
    """Link each user's asked updates; ``draw`` is noise that is drawn anew for every update."""

    def noisy(updates: MemoryUpdates, seed: int) -> MemoryUpdates:
        noise = np.random.default_rng(seed).standard_normal(updates.values.shape) * 1e-3 * draw
        return replace(updates, values=(updates.values + noise).astype(np.float32))

    def of(updates: object, seed: int) -> MemoryUpdates:
        assert isinstance(updates, MemoryUpdates)
        return noisy(updates, seed)

    problem = cases.problem(cases.planted(signal))
    problem = replace(problem, updates=of(problem.updates, 1))
    made = of(cases.validation(signal)[0].problem.updates, 2)
    folds = tuple(replace(f, problem=replace(f.problem, updates=made)) for f in cases.validation(signal))
    choice = Choice(mixes=(TrainingMix(name="clean", problem=problem, folds=folds),), weights=(1.0,), aps={})
    work, rng = Workspace(), torch.Generator().manual_seed(0)
    tuned = [tune(attack, folds, work, rng)]
    users = cases.truth(len(problem.ask))
    parts = [np.flatnonzero(users == user) for user in range(cases.USERS)]
    exchanged = np.roll(np.arange(cases.USERS), 1)
    return link(attack, choice, tuned, parts, exchanged, work, rng), np.arange(cases.USERS)


def test_where_noise_is_drawn_anew_in_every_update_their_mean_tells_more() -> None:
    linking, users = _found(signal=1.0, draw=6.0)
    assert linking.by == "updates" and linking.aps["updates"] > linking.aps["scores"]
    assert linking.scores is not None and linking.blind is not None
    assert average_precision(linking.scores, users).mean() > 0.5, "chance is .26"
    assert average_precision(linking.blind, users).mean() < 0.45, "exchanged labels teach nothing"


def test_where_both_ways_do_as_well_scores_are_averaged() -> None:
    linking, _ = _found(signal=3.0, draw=0.0)
    assert linking.by == "scores" and linking.scores is None
    assert linking.aps["scores"] == pytest.approx(1.0)
    rival, users = _found(signal=3.0, draw=0.0, attack=RidgeOfMeans())
    assert rival.by == "updates" and rival.scores is not None, "whatever is preferred"
    assert average_precision(rival.scores, users).mean() > 0.9


def test_devices_with_modes_are_joined_by_their_scores() -> None:
    problem = cases.problem(cases.planted(1.0))
    modes = Modes(fit=np.full(len(problem.fit), NO_MODE), ask=np.zeros(len(problem.ask), dtype=np.int64))
    mix = TrainingMix(name="defended", problem=replace(problem, modes=modes), folds=())
    choice = Choice(mixes=(mix,), weights=(1.0,), aps={})
    found = link(Ridge(), choice, [], [], np.arange(cases.USERS), Workspace(), torch.Generator())
    assert found == Linking(by="scores", aps={})
