"""Learned attacks on another device than the CPU. Tensors on ``meta`` have no values, and mix with no other device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedprint.attacks.learner import Learner, MlpSettings
from fedprint.attacks.matching.towers import PairBatches, PairData, Towers, TowerSettings, fit_towers, score_pairs
from fedprint.attacks.reidentification.mlp import ReidentificationMlp, fit_mlp
from fedprint.attacks.reidentification.raw import UserNetwork, fit_network, network_set_scores
from fedprint.models import base
from fedprint.models.batches import ShuffledBatches

ROWS, WIDTH, USERS = 40, 6, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, WIDTH)).astype(np.float32)
Y = np.arange(ROWS) % USERS
PAIRS = np.stack([RNG.permutation(ROWS), RNG.permutation(ROWS)], axis=1)
SAME = Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]]
PICTURES = torch.from_numpy(RNG.random((ROWS, 1, 12, 12)).astype(np.float32))
WORDS = torch.from_numpy(RNG.integers(0, 20, (ROWS, 8)))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mlp() -> tuple[Learner, ShuffledBatches]:
    columns = {"x": torch.from_numpy(X), "y": torch.from_numpy(Y)}
    return ReidentificationMlp(WIDTH, USERS, MlpSettings(hidden=8), rng()), ShuffledBatches(columns, 16, rng())


def towers() -> tuple[Learner, ShuffledBatches]:
    side = torch.from_numpy(X)
    return Towers([WIDTH], TowerSettings(), rng()), PairBatches((side, side), PAIRS, SAME, 16, rng())


def raw(x: torch.Tensor) -> tuple[Learner, ShuffledBatches]:
    return UserNetwork(x, USERS, rng()), ShuffledBatches({"x": x, "y": torch.from_numpy(Y)}, 16, rng())


LEARNERS: dict[str, Callable[[], tuple[Learner, ShuffledBatches]]] = {
    "mlp": mlp,
    "towers": towers,
    "pictures": lambda: raw(PICTURES),
    "words": lambda: raw(WORDS),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_tensor_of_a_fit_moves_with_its_batches(name: str) -> None:
    module, batches = LEARNERS[name]()
    assert batches.to(torch.device("cpu")) is batches
    there = batches.to(torch.device("meta"))
    module.to("meta")
    losses = [module.loss(batch) for batch in there]
    assert len(losses) == 3
    assert all(loss.device.type == "meta" for loss in losses)


def test_moving_batches_changes_neither_their_order_nor_their_rows() -> None:
    (_, one), (_, other) = mlp(), mlp()
    for _ in range(2):  # epochs
        for plain, moved in zip(one, other.to(torch.device("cpu")), strict=True):
            assert all(torch.equal(plain[column], moved[column]) for column in plain)


def test_a_trainer_takes_a_gpu_where_this_process_sees_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("lightning.Trainer", lambda **given: asked.append((given["accelerator"], given["devices"])))
    for count in (0, 4):
        monkeypatch.setattr(base, "gpu_count", lambda count=count: count)
        base.quiet_trainer(1)
    assert asked == [("cpu", 1), ("cuda", 1)]


def fit(name: str) -> np.ndarray:
    """Return the answers of a short fit."""
    if name == "mlp":
        short = MlpSettings(hidden=8, epochs=4, patience=4)
        return fit_mlp(X, Y, X, USERS, short, rng())
    if name == "towers":
        data = PairData(pairs=PAIRS, same=SAME)
        return score_pairs(fit_towers((X, X), data, data, TowerSettings(epochs=4), rng()), (X, X), PAIRS)
    x = PICTURES if name == "pictures" else WORDS
    return network_set_scores(fit_network(x, Y, USERS, 3, rng()), x, np.arange(ROWS)[:, None])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", LEARNERS)
def test_a_gpu_learns_what_the_cpu_learns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = fit(name)
    monkeypatch.setattr(base, "gpu_count", lambda: 0)
    np.testing.assert_allclose(there, fit(name), rtol=1e-2, atol=1e-3)
