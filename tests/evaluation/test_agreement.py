"""Whether two runs measured the same."""

from __future__ import annotations

from typing import Any

import pytest

from fedprint.evaluation.agreement import agreement, described
from fedprint.evaluation.rows import Row


def row(**changes: Any) -> Row:
    subject = {"experiment": "a", "attack": "ridge", "metric": "ap", "unit": "fraction", "seed": 0, "config_hash": "1"}
    numbers = {"value": 0.4, "lo": 0.3, "hi": 0.5, "chance": 0.1, "n_questions": 10, "n_users": 5}
    return {**subject, **numbers, **changes}


def test_equal_rows_are_the_same_in_any_order_and_whatever_the_runs_are_called() -> None:
    first = [row(), row(metric="top1")]
    second = [row(metric="top1", experiment="b", config_hash="2"), row(experiment="b", config_hash="2")]
    found = agreement(first, second)
    assert found.holds and found.same == 2 and not found.within


@pytest.mark.parametrize(
    ("changes", "holds"),
    [({"value": 0.45}, True), ({"value": 0.45, "lo": 0.41, "hi": 0.6}, False), ({"value": 0.55, "hi": 0.6}, False),
     ({"n_users": 6}, True), ({"lo": None, "hi": None}, True), ({"value": 0.45, "lo": None, "hi": None}, False),
     ({"value": None}, False)],
)  # fmt: skip
def test_other_values_agree_within_each_others_intervals_only(changes: dict[str, Any], holds: bool) -> None:
    for pair in (([row()], [row(**changes)]), ([row(**changes)], [row()])):
        found = agreement(*pair)
        assert found.holds == holds and found.same == 0
        assert len(found.within) == holds and len(found.beyond) == (not holds)


def test_numbers_count_as_they_are_written() -> None:
    found = agreement([row(value=1, lo=0, hi=1)], [row(value=1.0, lo=0, hi=1)])
    assert found.same == 0 and found.holds


def test_rows_of_one_side_are_missing_or_added() -> None:
    found = agreement([row(), row(attack="svm")], [row(), row(seed=1), row(seed=2)])
    assert (len(found.missing), len(found.added), found.holds) == (1, 2, False)
    assert found.missing[0]["attack"] == "svm"
    assert not agreement([row(), row()], [row()]).holds, "one row answers for one"


def test_columns_to_ignore_are_the_callers_choice() -> None:
    pair = [row()], [row(config_hash="2", seed=5)]
    assert not agreement(*pair).holds
    assert agreement(*pair, ignore=["config_hash", "seed"]).same == 1
    assert not agreement(*pair, ignore=["seed"]).holds


def test_an_empty_column_may_be_absent() -> None:
    assert agreement([row(analysis=None)], [row()]).same == 1


def test_a_row_is_described_by_what_it_is_about() -> None:
    assert described(row(layers=None)) == "attack=ridge metric=ap seed=0"
