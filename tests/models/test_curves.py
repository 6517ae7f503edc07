"""Curves of a fit: sent by name and epoch, through Lightning's own logger, and without an effect on the fit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from fedprint.attacks.learner import MlpSettings
from fedprint.attacks.reidentification.mlp import fit_mlp
from fedprint.models import curves
from fedprint.models.base import quiet_trainer
from fedprint.models.batches import ShuffledBatches
from fedprint.models.components import SmallCnn
from fedprint.models.curves import Curves, PipeLogger
from fedprint.models.networks import build_network

Messages = list[Mapping[str, Any]]


def _scores(logger: PipeLogger | None) -> np.ndarray:
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(40, 6, generator=rng).numpy()
    labels = np.arange(40) % 4
    return fit_mlp(x, labels, x[:5], 4, MlpSettings(epochs=3, batch_size=8), rng, logger)


def _points(messages: Messages) -> dict[str, list[tuple[int, float]]]:
    points_of: dict[str, list[tuple[int, float]]] = {}
    for message in messages:
        for name, value, step in message["metrics"]:
            points_of.setdefault(name, []).append((step, value))
    return points_of


def test_a_learned_attack_tells_both_losses_of_every_epoch_and_scores_the_same() -> None:
    messages: Messages = []
    assert np.array_equal(_scores(Curves(send=messages.append, name="mlp naive").logger()), _scores(None))
    points_of = _points(messages)
    assert points_of.keys() == {"curves/mlp naive/loss", "curves/mlp naive/held_out"}
    for points in points_of.values():
        assert [step for step, _ in points] == [0, 1, 2]
    assert len(messages) == 1


def test_many_points_are_told_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "POINTS_PER_MESSAGE", 2)
    messages: Messages = []
    _scores(PipeLogger(messages.append, "mlp"))
    assert len(messages) == 3


def test_each_fit_of_an_answer_has_a_name() -> None:
    made = Curves(send=lambda message: None, name="mlp")
    assert [made.logger()._prefix for _ in range(3)] == ["curves/mlp", "curves/mlp-2", "curves/mlp-3"]


def _central(logger: PipeLogger | None) -> list[torch.Tensor]:
    model = build_network(SmallCnn(channels=(2, 2), hidden=4), (1, 8, 8), 3, False)
    rng = torch.Generator().manual_seed(5)
    model.reset(rng)
    columns = {"x": torch.rand(20, 1, 8, 8, generator=rng), "y": torch.arange(20) % 3}
    quiet_trainer(2, logger=logger).fit(model, ShuffledBatches(columns, 8, rng).loader())
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_the_centralised_baseline_tells_its_loss_by_epoch_and_ends_the_same() -> None:
    messages: Messages = []
    with_curve, without = _central(PipeLogger(messages.append, "centralised")), _central(None)
    assert all(torch.equal(a, b) for a, b in zip(with_curve, without, strict=True))
    assert [step for step, _ in _points(messages)["curves/centralised/loss"]] == [0, 1]


def test_a_fit_without_curves_does_not_import_mlflow() -> None:
    code = "import sys, fedprint.attacks.reidentification.mlp, fedprint.models.base; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
