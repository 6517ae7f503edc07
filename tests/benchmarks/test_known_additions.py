"""The bound of known additions is about additions: nothing else of the sender may be in what is subtracted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import known_additions
from fedprint.attacks.adversary.shadow_devices import ShadowDevice

ROUNDS = np.array([3, 5])


def planned(monkeypatch: pytest.MonkeyPatch, users: list[int], added: dict[int, Any]) -> list[ShadowDevice]:
    """Return the reference devices of two rows, ``users`` of which sent them."""
    plan: list[ShadowDevice] = []

    def train(view: object, devices: list[ShadowDevice]) -> SimpleNamespace:
        plan.extend(devices)
        return SimpleNamespace(values=np.zeros((len(devices), 1), np.float32))

    monkeypatch.setattr(known_additions, "shadow_updates", train)
    view: Any = SimpleNamespace(seed=7, prior_users=tuple(user(number, 4) for number in range(3)))
    known_additions.references(view, "asked", np.array(users), ROUNDS, added)
    return plan


def user(number: int, n: int) -> SimpleNamespace:
    return SimpleNamespace(user_id=number, examples=examples(number, n))


def examples(number: int, n: int) -> dict[str, torch.Tensor]:
    return {"x": torch.full((n, 1), float(number)), "y": torch.full((n,), number)}


def test_without_additions_senders_of_as_many_examples_have_one_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (planned(monkeypatch, [sender, sender], {}) for sender in (0, 1))
    for here, there in zip(one, two, strict=True):
        assert (here.user_id, here.tag, here.round) == (there.user_id, there.tag, there.round)
        assert {column: here.examples[column].tolist() for column in "xy"} == {
            column: there.examples[column].tolist() for column in "xy"
        }


def test_with_additions_only_these_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    added = {0: examples(10, 2), 1: examples(11, 2)}
    one, two = (planned(monkeypatch, [sender, sender], added) for sender in (0, 1))
    for here, there in zip(one, two, strict=True):
        assert here.examples["x"][:4].tolist() == there.examples["x"][:4].tolist()
        assert here.examples["y"][4:].tolist() == [10, 10]
        assert there.examples["y"][4:].tolist() == [11, 11]
    assert one[0].examples["x"][:4].tolist() != one[1].examples["x"][:4].tolist(), "other examples in every row"
