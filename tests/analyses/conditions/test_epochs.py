from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from analysis_cases import answered, ap, bench, mean_ap

from fedprint.analyses.conditions.epochs import Epochs, complete, round_bins
from fedprint.analyses.trials import UPDATES

if TYPE_CHECKING:
    from fedprint.lab.graph import Task


def test_bins_cover_training_without_overlap() -> None:
    assert round_bins(100, 10) == [(10 * i, 10 * i + 9) for i in range(10)]
    assert round_bins(3, 10) == [(0, 0), (1, 1), (2, 2)]
    uneven = round_bins(7, 3)
    assert [t for first, last in uneven for t in range(first, last + 1)] == list(range(7))


def test_the_matrix_is_full_and_each_cell_asks_its_rounds_updates(tiny_run: Task) -> None:
    trials, answers = answered(tiny_run, Epochs(bins=4))
    assert len(trials) == 16
    index = bench(tiny_run).view.store.index
    rounds = index["round"].to_numpy()[(index["role"] == "anonymous").to_numpy()]
    for trial in trials:
        assert trial.questions == UPDATES
        asked = rounds[trial.rows]
        assert (asked >= trial.keys["test_first"]).all()
        assert (asked <= trial.keys["test_last"]).all()
    row = [trial.rows for trial in trials if trial.keys["train_bin"] == 0]
    assert sorted(np.concatenate(row)) == list(range(len(answers[UPDATES].answers)))


def test_every_bin_knows_every_user_from_its_own_rounds(tiny_run: Task) -> None:
    desk = bench(tiny_run)
    spans = round_bins(desk.view.store.rounds, 4)
    table = complete(desk, spans)
    added = len(table.problem.fit) - len(desk.problem.fit)
    assert added > 0, "nothing was missing: the test shows nothing"
    index = desk.view.store.index
    for i, (first, last) in enumerate(spans):
        part = table.fitting(i)
        assert set(part.labels) == set(range(len(desk.options)))
        recorded = index.iloc[part.fit[part.fit >= added] - added]
        assert (recorded["role"] == "prior").all()
        assert recorded["round"].between(first, last).all()
    values = next(iter(table.problem.updates.blocks(["head"])))
    stored = next(iter(desk.view.store.blocks(["head"])))
    np.testing.assert_array_equal(values[added:], stored)


def test_updates_of_other_rounds_recognise_users_too(tiny_run: Task) -> None:
    trials, answers = answered(tiny_run, Epochs(bins=2))
    other = [trial for trial in trials if trial.keys["train_bin"] != trial.keys["test_bin"]]
    chance = np.mean([ap(trial, answers).chance for trial in other])
    assert mean_ap(other, answers) > 1.3 * chance
