"""Inner products of examples train what plain steps do, and are used where they are cheaper."""

from __future__ import annotations

from dataclasses import replace

import federation_cases as cases
import pytest
import torch

from fedprint.federation import few_examples
from fedprint.federation.backends import make_backend
from fedprint.types import ClientJob, LocalTraining

ONCE = LocalTraining(epochs=1, batch_size=5, lr=0.2)
HIDDEN = 16
"""Outputs of the first layer of cases.model("mlp")."""


@pytest.mark.parametrize("kind", ["mlp", "mlp-multi-label", "linear"])
def test_products_of_examples_train_what_plain_steps_do(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = cases.model(kind, torch.float64)
    jobs = [
        ClientJob(device_id=str(n), examples=cases.examples(kind, n, seed=n, dtype=torch.float64), seed=n)
        for n in (6, 5, 6)
    ]
    trained = []

    def counted(*given: object) -> object:
        trained.append(given)
        return train(*given)  # type: ignore[arg-type]

    train = few_examples.train
    monkeypatch.setattr(few_examples, "train", counted)
    by_products = list(make_backend("vectorised", net).run(jobs, cases.start(net), ONCE))
    assert len(trained) == 1
    monkeypatch.setattr(few_examples, "are_few", lambda *given: False)
    by_steps = list(make_backend("vectorised", net).run(jobs, cases.start(net), ONCE))
    assert len(trained) == 1
    for one, other in zip(by_products, by_steps, strict=True):
        assert list(one.update) == list(other.update)
        assert cases.distance(one.update, other.update) < 1e-13
        assert one.loss == pytest.approx(other.loss, abs=1e-13)
        assert (one.device_id, one.num_examples) == (other.device_id, other.num_examples)


def test_they_pay_for_one_plain_epoch_of_few_examples() -> None:
    net = cases.model("mlp")
    dense = net.stacked_gradients()
    assert dense is not None

    def are_few(n: int, training: LocalTraining = ONCE) -> bool:
        return few_examples.are_few(n, dense, cases.start(net), training)

    assert are_few(few_examples.MOST * HIDDEN)
    assert not are_few(few_examples.MOST * HIDDEN + 1)
    for other in (replace(ONCE, epochs=2), replace(ONCE, optimiser="momentum"), replace(ONCE, noise=0.1)):
        assert not are_few(5, other)
