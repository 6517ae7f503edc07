from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from analysis_cases import answered, ap, bench

from fedprint.analyses.base import Bench
from fedprint.analyses.conditions import amounts as module
from fedprint.analyses.conditions.amounts import PriorExamples, amounts, background_validation, limited, some_of
from fedprint.attacks.adversary.shadow_devices import ShadowDevice
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView
from fedprint.types import User

if TYPE_CHECKING:
    from fedprint.lab.graph import Task


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[ShadowDevice]:
    """Return the devices that were trained."""
    seen: list[ShadowDevice] = []
    real = module.shadow_updates

    def spy(view: AttackerView, devices: Sequence[ShadowDevice]) -> MemoryUpdates:
        seen.extend(devices)
        return real(view, devices)

    monkeypatch.setattr(module, "shadow_updates", spy)
    return seen


def _images(device: ShadowDevice | User) -> set[bytes]:
    return {x.numpy().tobytes() for x in device.examples["x"]}


def _crowd(view: AttackerView, users: int) -> AttackerView:
    """The same view with ``users`` background users of other data."""
    rng = torch.Generator().manual_seed(0)
    like = view.prior_users[0].examples
    made = [
        User(user_id=500 + i, examples={**like, "x": torch.rand(like["x"].shape, generator=rng)}) for i in range(users)
    ]
    return replace(view, background=tuple(made))


def _with_crowd(job: Task, users: int = 12) -> Bench:
    desk = bench(job)
    return replace(desk, view=_crowd(desk.view, users))


def test_amounts_double_up_to_all() -> None:
    assert amounts(1) == [1]
    assert amounts(2) == [1, 2]
    assert amounts(52) == [1, 2, 4, 8, 16, 32, 52]
    assert amounts(160) == [1, 2, 4, 8, 16, 32, 64, 160]


def test_draws_are_nested_and_stop_at_what_there_is(tiny_run: Task) -> None:
    view = bench(tiny_run).view
    user = view.prior_users[0]
    n = len(user.examples["y"])
    drawn = [some_of(view, user.user_id, user.examples, k) for k in (1, 2, 4, n, n + 5)]
    assert [len(part["y"]) for part in drawn] == [1, 2, 4, n, n]
    for small, large in itertools.pairwise(drawn):
        assert torch.equal(small["x"], large["x"][: len(small["x"])])


def test_the_adversary_trains_on_k_examples_of_each_prior_and_nothing_else(
    tiny_run: Task, trained: list[ShadowDevice]
) -> None:
    desk = bench(tiny_run)
    problem = limited(desk, 2, 3)
    prior = {user.user_id: _images(user) for user in desk.view.prior_users}
    assert len(trained) == 3 * len(prior)
    assert len({device.round for device in trained}) == 3
    for device in trained:
        assert len(_images(device)) == 2
        assert _images(device) <= prior[device.user_id]
    assert [desk.everyone.options[label] for label in problem.labels] == [device.user_id for device in trained]


def test_all_anonymous_updates_are_asked_for_in_the_stores_order(tiny_run: Task) -> None:
    desk = bench(tiny_run)
    problem = limited(desk, 1, 2)
    values = next(iter(problem.updates.blocks(["head"])))
    stored = next(iter(desk.view.store.blocks(["head"])))
    np.testing.assert_array_equal(values[problem.ask], stored[desk.view.anonymous_rows])
    assert len(values) == len(problem.fit) + len(problem.ask)


def test_settings_are_validated_on_background_users_alone(tiny_run: Task, trained: list[ShadowDevice]) -> None:
    desk = _with_crowd(tiny_run)
    validation = background_validation(desk.view, 10, 4)
    assert validation is not None
    assert len(validation.known) == 10
    assert {device.user_id for device in trained} == set(validation.known) <= set(range(500, 512))
    assert not {device.round for device in trained} & set(validation.rounds)
    for device in trained:
        known = User(user_id=device.user_id, examples=validation.known[device.user_id])
        assert not _images(device) & _images(known)


def test_curves_start_at_one_example_and_end_with_all(tiny_run: Task) -> None:
    trials, answers = answered(tiny_run, PriorExamples(attack="ridge", rounds=4))
    asked = [trial.keys["prior_examples"] for trial in trials]
    largest = max(len(user.examples["y"]) for user in bench(tiny_run).view.prior_users)
    assert asked[:3] == [1, 2, 4]
    assert asked[-1] == largest
    assert {trial.keys["tuned_on"] for trial in trials} == {"prior"}, "eight background users are too few"
    last = ap(trials[-1], answers)
    assert last.chance is not None
    assert last.value > 1.3 * last.chance
    assert last.value > ap(trials[0], answers).value


def test_with_a_crowd_each_amount_has_settings_of_its_own(tiny_run: Task, trained: list[ShadowDevice]) -> None:
    desk = _with_crowd(tiny_run)
    trials = list(PriorExamples(attack="ridge", rounds=4, most=2, validation_users=10).trials(desk))
    assert [(t.keys["prior_examples"], t.keys["tuned_on"]) for t in trials] == [(1, "background"), (2, "background")]
    sizes = {device.tag: len(device.examples["y"]) for device in trained}
    assert (sizes["1-known"], sizes["1-rehearsed"], sizes["2-known"], sizes["2-rehearsed"]) == (1, 1, 2, 2)
    again = list(PriorExamples(attack="ridge", rounds=4, most=2, validation_users=10).trials(desk))
    for first, second in zip(trials, again, strict=True):
        np.testing.assert_array_equal(first.scores, second.scores)
