"""secure-aggregation: the adversary is left with sums, the model is the same, and nothing else gets through."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedprint import params as algebra
from fedprint.defences.on_update import Noise
from fedprint.defences.secure_aggregation import (
    SecureAggregation,
    as_seen,
    check_group,
    secure_aggregation,
    server_view,
    shared_counts,
)
from fedprint.rng import torch_rng
from fedprint.types import DataDefence, FedprintError, Params, Role, UpdateDefence

ROLES: list[Role] = ["anonymous", "prior", "anonymous", "anonymous", "prior", "anonymous", "anonymous"]
WEIGHTS = [3.0, 10.0, 1.0, 4.0, 2.0, 5.0, 7.0]


def sent() -> list[Params]:
    rng = torch_rng(0)
    shapes = {"w": (3, 2), "b": (2,)}
    return [{name: torch.randn(shape, generator=rng).double() for name, shape in shapes.items()} for _ in ROLES]


def total(updates: list[Params], weights: list[float], slots: list[int]) -> torch.Tensor:
    return sum((weights[i] * algebra.flatten(updates[i]) for i in slots), torch.zeros(8, dtype=torch.float64))


@pytest.mark.parametrize("defence", [None, SecureAggregation(size=1)])
def test_groups_of_one_change_nothing(defence: SecureAggregation | None) -> None:
    given = sent()
    assert all(a is b for a, b in zip(as_seen(given, WEIGHTS, ROLES, defence), given, strict=True))
    assert shared_counts([4, 5, 6, 7, 8, 9, 1], ROLES, defence) == [4, 5, 6, 7, 8, 9, 1]
    assert server_view([] if defence is None else [defence]) == "local"


@pytest.mark.parametrize("size", [2, 3, 7, None])
def test_of_a_group_only_the_sum_gets_through(size: int | None) -> None:
    given, defence = sent(), SecureAggregation(size=size)
    seen = as_seen(given, WEIGHTS, ROLES, defence)
    for group in defence.groups(len(given)):
        hidden = [slot for slot in group if ROLES[slot] == "anonymous"]
        torch.testing.assert_close(total(seen, WEIGHTS, hidden), total(given, WEIGHTS, hidden))
        assert len({tuple(algebra.flatten(seen[slot]).tolist()) for slot in hidden}) <= 1
    alone = [g for g in defence.groups(len(given)) if sum(ROLES[slot] == "anonymous" for slot in g) == 1]
    changed = [not torch.equal(seen[i]["w"], given[i]["w"]) for i, role in enumerate(ROLES) if role == "anonymous"]
    assert sum(changed) == len(changed) - len(alone) > 0
    assert server_view([Noise(sigma=1), defence]) == "aggregate"


def test_what_one_member_sent_shows_in_the_sum_alone() -> None:
    """Two rounds in which two members of a group exchange an amount: the adversary cannot tell them apart."""
    first, second = sent(), sent()
    moved = torch.ones(3, 2).double()
    second[0] = {**second[0], "w": first[0]["w"] + moved / WEIGHTS[0]}
    second[2] = {**second[2], "w": first[2]["w"] - moved / WEIGHTS[2]}
    a, b = (as_seen(updates, WEIGHTS, ROLES, SecureAggregation(size=3)) for updates in (first, second))
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(algebra.flatten(one), algebra.flatten(other))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, None])
@pytest.mark.parametrize("count", [0, 1, 6, 7])
def test_groups_part_the_slots_and_none_is_smaller_than_asked_for(size: int | None, count: int) -> None:
    groups = SecureAggregation(size=size).groups(count)
    assert [slot for group in groups for slot in group] == list(range(count))
    assert all(len(group) >= min(size or count, count) for group in groups)
    assert len(groups) == max(1, count // (size or max(count, 1)))


def test_numbers_of_examples_are_known_as_sums_too() -> None:
    examples = [9, 50, 1, 4, 60, 5, 8]
    defence = SecureAggregation(size=3)
    shown = shared_counts(examples, ROLES, defence)
    for group in defence.groups(len(examples)):
        hidden = [slot for slot in group if ROLES[slot] == "anonymous"]
        assert sum(shown[slot] for slot in hidden) == sum(examples[slot] for slot in hidden)
        assert max(shown[slot] for slot in hidden) - min(shown[slot] for slot in hidden) <= 1
    assert [shown[i] for i, role in enumerate(ROLES) if role == "prior"] == [50, 60]


def test_it_acts_at_neither_point() -> None:
    assert not isinstance(SecureAggregation(), DataDefence | UpdateDefence)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="size"):
        SecureAggregation(size=0)
    with pytest.raises(ValueError, match="keep one secure-aggregation"):
        secure_aggregation([SecureAggregation(), SecureAggregation(size=2)])
    with pytest.raises(FedprintError, match=r"groups of 9 do not fit a cohort of 8 devices; lower size"):
        check_group([SecureAggregation(size=9)], 8)
    check_group([SecureAggregation(size=8)], 8)
    check_group([SecureAggregation()], 1)


def test_a_sum_of_many_is_as_hard_to_read_as_the_formula_says() -> None:
    """A linear score of the members' mean is the members' mean score: 1 / m of one device's own signal."""
    rng = np.random.default_rng(0)
    sent = rng.normal(size=(7, 4000)).astype(np.float64)
    updates: list[Params] = [{"w": torch.from_numpy(row)} for row in sent]
    everyone: list[Role] = ["anonymous"] * 7
    seen = as_seen(updates, [1.0] * 7, everyone, SecureAggregation())
    assert float(seen[0]["w"] @ torch.from_numpy(sent[0])) / float((sent[0] ** 2).sum()) == pytest.approx(
        1 / 7, abs=0.02
    )
