from __future__ import annotations

import pytest
import torch

from fedprint.data.examples import PooledExamples, concat, equal, num_examples, stack_rows, take
from fedprint.types import FedprintError

ROWS = {"x": torch.arange(6).reshape(3, 2), "y": torch.tensor([0.0, 1.0, 2.0])}


def test_take_then_concat_gives_the_rows_back() -> None:
    assert num_examples(ROWS) == 3
    assert equal(concat([take(ROWS, slice(0, 1)), take(ROWS, torch.tensor([1, 2]))]), ROWS)
    assert take(ROWS, torch.tensor([True, False, True]))["y"].tolist() == [0, 2]


def test_equal_sees_values_types_and_columns() -> None:
    assert not equal(ROWS, {**ROWS, "y": ROWS["y"] + 1})
    assert not equal(ROWS, {**ROWS, "y": ROWS["y"].double()})
    assert not equal(ROWS, {"x": ROWS["x"]})


def test_ragged_empty_or_mixed_examples_are_refused() -> None:
    for call in (
        lambda: num_examples({**ROWS, "y": torch.zeros(2)}),
        lambda: num_examples({}),
        lambda: concat([]),
        lambda: concat([ROWS, {"x": ROWS["x"]}]),
    ):
        with pytest.raises(FedprintError, match="examples:"):
            call()


def test_stacked_rows_are_those_of_each_part_also_of_a_pool() -> None:
    pool = {"x": torch.arange(20.0).view(10, 2), "y": torch.arange(10)}
    parts = [PooledExamples(pool, torch.tensor([3, 1, 7]), {}), PooledExamples(pool, torch.tensor([0, 9]), {})]
    rows = torch.tensor([[2, 0, 1], [1, 1, 0]])
    stacked, plain = stack_rows(parts, rows), stack_rows([dict(part) for part in parts], rows)
    assert stacked["y"].tolist() == plain["y"].tolist() == [[7, 3, 1], [9, 9, 0]]
    assert stacked["x"].equal(pool["x"][stacked["y"]])
    assert plain["x"].equal(stacked["x"])
