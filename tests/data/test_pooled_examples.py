"""Examples that users share: rows of one pool, gathered when read, written once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedprint.data.examples import PooledExamples, columns, concat, equal, gathered, num_examples, take
from fedprint.data.prepared import load_users, save_users
from fedprint.types import Examples, FedprintError, User

POOL = {"x": torch.arange(20).view(10, 2), "y": torch.arange(10) * 11}
INDEX = torch.tensor([3, 3, 9, 0])


def some(index: torch.Tensor = INDEX, pool: Examples = POOL) -> PooledExamples:
    return PooledExamples(pool, index, {"t": torch.arange(len(index))})


def plain(examples: Examples) -> dict[str, torch.Tensor]:
    return {name: examples[name] for name in examples}


def test_columns_are_rows_of_the_pool() -> None:
    examples = some()
    assert torch.equal(examples["x"], POOL["x"][INDEX]) and torch.equal(examples["t"], torch.arange(4))
    assert set(examples) == {"x", "y", "t"} and len(examples) == 3 and num_examples(examples) == 4
    assert "y" in examples and "code" not in examples
    with pytest.raises(KeyError):
        examples["code"]
    assert set(gathered(examples)) == {"x", "y"} and torch.equal(gathered(examples)["y"], POOL["y"][INDEX])


@pytest.mark.parametrize("index", [torch.tensor([2, 0]), torch.tensor([True, False, True, True]), slice(1, None)])
def test_taking_rows_and_columns_equals_taking_them_of_gathered_ones(index: torch.Tensor | slice) -> None:
    taken = take(columns(some(), ("t", "y", "missing")), index)
    assert isinstance(taken, PooledExamples)
    assert equal(taken, take(columns(plain(some()), ("t", "y", "missing")), index))


def test_parts_of_one_pool_stay_in_it_and_other_parts_do_not() -> None:
    parts = [some(), some(torch.tensor([1]))]
    together = concat(parts)
    assert isinstance(together, PooledExamples)
    assert equal(together, concat([plain(part) for part in parts]))
    other = concat([some(), some(torch.tensor([1]), {name: column + 1 for name, column in POOL.items()})])
    assert not isinstance(other, PooledExamples) and other["y"].tolist() == [33, 33, 99, 0, 12]
    assert concat([some(), plain(some())])["y"].tolist() == [33, 33, 99, 0] * 2
    with pytest.raises(FedprintError, match="same columns"):
        concat([some(), {"x": POOL["x"]}])


def test_the_file_holds_each_shared_example_once_and_gives_the_users_back(tmp_path: Path) -> None:
    users = [
        User(user_id=4, examples=some(), attributes={"a": 1}),
        User(user_id=7, examples=some(torch.tensor([9, 5, 3]))),
    ]
    save_users(tmp_path, users)
    with np.load(tmp_path / "users.npz") as archive:
        assert archive["pool.y"].tolist() == [0, 33, 55, 99]
        assert archive["rows"].tolist() == [1, 1, 3, 0, 3, 2, 1]
    loaded = load_users(tmp_path)
    assert [(u.user_id, dict(u.attributes)) for u in loaded] == [(4, {"a": 1}), (7, {})]
    for before, after in zip(users, loaded, strict=True):
        assert equal(plain(before.examples), plain(after.examples))
    first, second = (user.examples for user in loaded)
    assert isinstance(first, PooledExamples) and isinstance(second, PooledExamples) and first.pool is second.pool
    first_bytes = (tmp_path / "users.npz").read_bytes()
    save_users(tmp_path, loaded)
    assert (tmp_path / "users.npz").read_bytes() == first_bytes
