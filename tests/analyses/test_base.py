from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from analysis_cases import bench

from fedprint.analyses.base import SELECTED, restricted
from fedprint.analyses.trials import UPDATES
from fedprint.attacks.problem import Problem, among
from fedprint.attacks.updates import Joined, MemoryUpdates
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from fedprint.lab.graph import Task

SIZES = {"body": 7, "head": 3}


def _updates(rows: int, seed: int = 0) -> MemoryUpdates:
    values = np.random.default_rng(seed).normal(size=(rows, sum(SIZES.values()))).astype(np.float32)
    return MemoryUpdates(sizes=SIZES, values=values)


def _problem() -> Problem:
    labels = np.array([0, 1, 2, 2, 0])
    return Problem(updates=_updates(9), fit=np.arange(5), labels=labels, ask=np.arange(5, 9), options=3)


def test_a_restricted_problem_keeps_labels_beside_their_rows() -> None:
    part = restricted(_problem(), fit=np.array([False, True, True, False, True]), ask=np.array([8]))
    assert (part.fit.tolist(), part.labels.tolist(), part.ask.tolist()) == ([1, 2, 4], [1, 2, 0], [8])
    assert part.options == 3
    assert restricted(_problem(), ask=np.array([6])).fit.tolist() == [0, 1, 2, 3, 4]


def test_a_condition_that_leaves_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(FedprintError, match="leaves no prior update to learn from; record more rounds"):
        restricted(_problem(), fit=np.zeros(5, dtype=bool))


def test_among_fewer_users_labels_count_anew_in_the_order_given() -> None:
    part = among(_problem(), [2, 0], np.array([7, 5]))
    assert (part.fit.tolist(), part.labels.tolist()) == ([0, 2, 3, 4], [1, 0, 0, 1])
    assert (part.options, part.ask.tolist()) == (2, [7, 5])


@pytest.mark.parametrize("layers", [None, ["head"], ["body"]])
@pytest.mark.parametrize("columns", [2, 100])
def test_joined_tables_are_one_above_the_other(layers: list[str] | None, columns: int) -> None:
    first, second = _updates(4), _updates(6, seed=1)
    joined = Joined(first=first, second=second)
    assert (joined.layers, joined.sizes) == (second.layers, second.sizes)
    both = MemoryUpdates(sizes=SIZES, values=np.concatenate([first.values, second.values]))
    found = np.concatenate(list(joined.blocks(layers, columns=columns)), axis=1)
    np.testing.assert_array_equal(found, np.concatenate(list(both.blocks(layers, columns=columns)), axis=1))


def test_the_bench_resolves_the_selected_attack(tiny_run: Task) -> None:
    desk = bench(tiny_run)
    assert desk.attack(SELECTED) == desk.attack(desk.selected)
    with pytest.raises(FedprintError, match="no attack 'mlp' in this experiment; choose of chance, knn, ridge"):
        desk.attack("mlp")


def test_the_bench_answers_as_the_attack_stage_did(tiny_run: Task) -> None:
    desk = bench(tiny_run)
    with np.load(tiny_run.at("attack") / "naive" / "scores.npz") as archive:
        known = archive["update/ridge"]
    np.testing.assert_allclose(desk.scores("ridge", desk.problem, "here"), known, atol=1e-4)  # the tie-break differs


def test_scores_depend_on_the_path_of_the_seed_alone(tiny_run: Task) -> None:
    desk = bench(tiny_run)
    first, again = (desk.scores("chance", desk.problem, "a", 1) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, desk.scores("chance", desk.problem, "a", 2))


def test_a_trial_on_some_rows_names_their_places_among_the_questions(tiny_run: Task) -> None:
    desk = bench(tiny_run)
    some = desk.problem.ask[[4, 1]]
    trial = desk.trial(restricted(desk.problem, ask=some), np.zeros((2, len(desk.options))), {"attack": "x"})
    assert (trial.questions, trial.rows.tolist()) == (UPDATES, [4, 1])
    subjects = desk.questions[UPDATES].subjects[trial.rows]
    np.testing.assert_array_equal(subjects, desk.view.store.index["obs_id"].to_numpy()[some])
    np.testing.assert_array_equal(trial.options, desk.everyone.options)


def test_folds_are_made_of_the_prior_and_know_their_answers(tiny_run: Task) -> None:
    desk = bench(tiny_run)
    for fold in desk.folds:
        assert fold.problem.updates is not desk.view.store
        assert len(fold.answers) == len(fold.problem.ask)
        assert set(fold.answers) <= set(range(len(desk.options)))
