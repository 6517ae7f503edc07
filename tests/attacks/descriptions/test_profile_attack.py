from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from fedprint.attacks.adversary.shadow_devices import ShadowDevice
from fedprint.attacks.descriptions.profile import (
    Shadows,
    ShadowSettings,
    background_devices,
    break_ties,
    choose_blocks,
    combine,
    deviations,
    evidence,
    fit_scores,
    has_any,
    head_columns,
    make_shadows,
)
from fedprint.attacks.reidentification.reidentify import mean_by_sender
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView
from fedprint.rng import torch_rng
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from fedprint.lab.graph import Task

SIZES = {"body.weight": 20, "head.weight": 12, "head.bias": 4}


@pytest.fixture(scope="module")
def view(tiny_run: Task) -> AttackerView:
    from fedprint.kinds.federation.building.view import open_view

    return open_view(tiny_run, "naive")[0]


def test_labels_of_every_task_are_found() -> None:
    single = {"x": torch.zeros(3, 1, 2, 2), "y": torch.tensor([0, 2, 1])}
    multi = {"x": single["x"], "y": torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 1, 1]])}
    words = {"x": torch.tensor([[2, 7], [2, 5]]), "y": torch.tensor([[7, 9], [5, -100]])}
    assert has_any(single, [1, 2], "single_label").tolist() == [False, True, True]
    assert has_any(multi, [0, 2], "multi_label").tolist() == [True, False, True]
    assert has_any(words, [9], "language_model").tolist() == [True, False]
    assert has_any(words, [9], "regression").tolist() == [False, False]
    assert has_any(words, [5], "regression").tolist() == [False, True]


def test_background_devices_have_a_usual_size_and_none_of_the_profile(view: AttackerView) -> None:
    found = background_devices(view, [0], "multi_label", torch_rng(0))
    size = int(np.median([len(user.examples["y"]) for user in view.prior_users]))
    assert len(found) >= 4
    assert all(size / 2 <= len(device["y"]) <= size for device in found)
    assert not any((device["y"][:, 0] > 0).any() for device in found)


class _Recorder:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.devices: list[ShadowDevice] = []
        monkeypatch.setattr("fedprint.attacks.descriptions.profile.shadow_updates", self)

    def __call__(self, view: AttackerView, devices: list[ShadowDevice]) -> MemoryUpdates:
        self.devices = devices
        return MemoryUpdates(sizes=SIZES, values=np.zeros((len(devices), 36), np.float32))


def test_mixed_devices_hold_their_share_of_one_half_of_the_query(
    view: AttackerView, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = _Recorder(monkeypatch)
    background = background_devices(view, [0], "multi_label", torch_rng(0))
    x = torch.arange(10.0).reshape(10, 1, 1, 1).expand(10, 3, 32, 32)
    query = {"x": x + 100, "y": torch.ones(10, 12)}
    settings = ShadowSettings(devices=6, rounds=2, shares=(0.5, 1.0))
    shadows = make_shadows(view, query, background, settings, torch_rng(0))
    used: dict[int, set[float]] = {0: set(), 1: set()}
    for device, positive, side in zip(recorder.devices, shadows.positive, shadows.side, strict=True):
        marks = device.examples["x"][:, 0, 0, 0]
        ours = marks[marks >= 100]
        if not positive:
            assert not len(ours)
            continue
        index = device.user_id // 2
        assert len(ours) / len(marks) == pytest.approx((0.5, 1.0)[(index // 2) % 2], abs=0.05)
        assert len(marks) == len(background[index]["y"])
        used[int(side)] |= set(ours.tolist())
    assert not used[0] & used[1]
    assert len(recorder.devices) == 6 * 2 * 2


def test_too_little_to_learn_from_is_an_error(view: AttackerView) -> None:
    settings = ShadowSettings(devices=6, rounds=2, shares=(0.5,))
    few = {"x": torch.zeros(3, 3, 32, 32), "y": torch.zeros(3, 12)}
    with pytest.raises(FedprintError, match="3 query examples and 0 background devices"):
        make_shadows(view, few, [], settings, torch_rng(0))


def _planted(rng: np.random.Generator, rows: int, mixed: np.ndarray) -> np.ndarray:
    """Return updates (rows, 36) whose body moves in one direction where ``mixed``."""
    direction = np.concatenate([np.random.default_rng(0).normal(size=20), np.zeros(16)])
    return (1e-3 * (rng.normal(size=(rows, 36)) + 1.5 * mixed[:, None] * direction)).astype(np.float32)


def test_devices_with_the_profile_score_higher() -> None:
    rng = np.random.default_rng(1)
    positive = np.arange(40) % 2 == 1
    shadows = Shadows(
        updates=MemoryUpdates(sizes=SIZES, values=_planted(rng, 40, positive)),
        positive=positive,
        side=np.arange(40) // 2 % 2,
    )
    fits = rng.random(30) < 0.3
    both = np.concatenate([shadows.updates.values, _planted(rng, 30, fits)])
    joined = replace(shadows.updates, values=both)
    chosen = choose_blocks(shadows, Workspace())
    assert ("body.weight",) in chosen[0][0][0]  # the best block holds the layer with the signal
    for scores in fit_scores(shadows, joined, np.arange(40, 70), chosen, Workspace()).values():
        assert scores[fits].mean() > scores[~fits].mean()
        assert (scores[fits][:, None] > scores[~fits][None]).mean() > 0.9


def test_pooling_takes_the_mean_per_device() -> None:
    scores = np.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(mean_by_sender(scores, ["b", "a", "b"], ["a", "b"]), [2.0, 3.5])
    table = np.array([[1.0, 0], [3, 2], [5, 4]])
    np.testing.assert_allclose(mean_by_sender(table, ["b", "a", "b"], ["a", "b"]), [[3, 2], [3, 2]])


def test_ties_are_broken_and_orders_kept() -> None:
    scores = np.array([0.0, 1.0, 1.0, 2.0])
    broken = break_ties(scores, torch_rng(0))
    assert len(set(broken.tolist())) == 4
    assert broken[0] < broken[1:3].min()
    assert broken[1:3].max() < broken[3]


def test_head_columns_are_the_signed_bias_or_norms_of_weights() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(5, 36)).astype(np.float32)
    updates = MemoryUpdates(sizes=SIZES, values=values)
    bias = head_columns(updates, 4)
    assert bias is not None
    assert (np.sign(bias) == np.sign(values[:, 32:])).all()
    np.testing.assert_allclose(np.linalg.norm(bias, axis=1), 1)
    found = head_columns(replace(updates, sizes={"body.weight": 20, "head.weight": 12, "tail": 4}), 4)
    assert found is not None
    norms = np.linalg.norm(values[:, 20:32].reshape(5, 4, 3), axis=2)
    np.testing.assert_allclose(found, norms / np.linalg.norm(norms, axis=1, keepdims=True), rtol=1e-5)
    assert head_columns(replace(updates, sizes={"body.weight": 36}), 4) is None


def test_evidence_names_the_columns_that_moved() -> None:
    usual = np.random.default_rng(0).normal(1, 0.1, size=(50, 4))
    moved = np.array([[1, 1, 1, 3.0], [2.0, 1, 1, 1]])
    found = evidence(deviations(moved, usual), ("a", "b", "c", "d"), most=1)
    assert [row["classes"][0]["name"] for row in found] == ["d", "a"]
    assert found[0]["classes"][0]["deviations"] > found[1]["classes"][0]["deviations"] > 3


def test_combining_weighs_both_scores_equally() -> None:
    np.testing.assert_allclose(combine(np.array([0.0, 2.0]), np.array([100.0, 0.0])), [0, 0])
    found = combine(np.array([0.0, 1, 2]), np.array([5.0, 5, 5]))
    assert found.argsort().tolist() == [0, 1, 2]
