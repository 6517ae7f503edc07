"""Federated SGD on gradients: the same as central training where it must be, private where it must be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from polarization import polarization
from torch import Tensor

from fedprint.defences.on_update import Laplace, Noise, TopK
from fedprint.defences.points import defend_data
from fedprint.defences.secret_head import SecretHead
from fedprint.federation.gradient_rounds import GradientPlan, client_gradient, private_start, train_on_gradients
from fedprint.models.base import FedModule
from fedprint.models.components import DlNet
from fedprint.models.dual_head import DualHead
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import Device, FedprintError, Params

SHAPE, CLASSES = (1, 8, 8), 3
PLAN = GradientPlan(rounds=4, batch_size=5, lr=0.01, seed=0, aggregation="round-robin")


def network(*, secret: bool = False) -> FedModule:
    public = build_network(DlNet(channels=3), SHAPE, CLASSES, False)
    model = DualHead(public, bits=8) if secret else public
    model.reset(torch_rng(0, "model"))
    return model


def start(model: FedModule) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.public_parameters().items()}


def devices(count: int = 3, n: int = 10) -> list[Device]:
    rng = torch_rng(0, "data")
    return [
        Device(
            device_id=f"d{i}", user_id=i, role="anonymous",
            examples={"x": torch.rand(n, *SHAPE, generator=rng), "y": torch.randint(CLASSES, (n,), generator=rng)},
        )
        for i in range(count)
    ]  # fmt: skip


def same(a: Params, b: Params) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_one_client_with_all_data_in_a_batch_is_central_adam() -> None:
    model, (device,) = network(), devices(1)
    whole = replace(PLAN, batch_size=10)
    heard: list[float] = []
    trained = train_on_gradients(model, start(model), [device], (), whole, lambda t, loss: heard.append(loss))
    losses = []
    optimiser = torch.optim.Adam(model.parameters(), lr=whole.lr)
    for _ in range(whole.rounds):
        optimiser.zero_grad()
        loss = model.per_example_loss(device.examples).mean()
        losses.append(loss.item())
        loss.backward()
        optimiser.step()
    assert heard == pytest.approx(losses, rel=1e-4)
    for name, p in model.named_parameters():
        torch.testing.assert_close(trained[name], p.detach(), atol=1e-5, rtol=1e-4)


def test_the_two_aggregations_differ_with_several_clients_only() -> None:
    model = network()
    for count, equal in ((1, True), (3, False)):
        models = [
            train_on_gradients(model, start(model), devices(count), (), replace(PLAN, aggregation=how))
            for how in ("round-robin", "mean")
        ]
        assert same(*models) == equal


@pytest.mark.parametrize("defence", [Noise(sigma=0.1), Laplace(sigma=0.1), TopK(share=0.2, per_layer=True)])
def test_a_mechanism_acts_and_at_no_strength_it_changes_nothing(defence: Noise | Laplace | TopK) -> None:
    model = network()
    plain = train_on_gradients(model, start(model), devices(), (), PLAN)
    neutral = defence.model_copy(update=dict(defence.neutral))
    assert same(train_on_gradients(model, start(model), devices(), (neutral,), PLAN), plain)
    assert not same(train_on_gradients(model, start(model), devices(), (defence,), PLAN), plain)


def test_what_is_sent_under_a_secret_head_is_the_public_gradient_and_the_polarization() -> None:
    model, (plain,) = network(secret=True), devices(1)
    assert isinstance(model, DualHead)
    (device,) = defend_data([plain], (SecretHead(alpha2=0.3, bits=8),), {}, 0)
    private_part = private_start(model, device, 0)
    shared, private = client_gradient(model, start(model), private_part, device.examples)
    public, nothing = client_gradient(model, start(model), {}, plain.examples)
    assert set(shared) == set(start(model)) and set(private) == set(private_part) and not nothing
    added = torch.cat([(shared[name] - public[name]).flatten() for name in shared])
    clean = torch.cat([tensor.flatten() for tensor in public.values()])
    ratio = polarization(model, {**start(model), **private_part}, device.examples)[""].ratio
    assert float(clean.norm() / added.norm()) == pytest.approx(ratio, rel=1e-4)
    torch.testing.assert_close(shared["head.weight"], public["head.weight"])  # the public head is left alone


def test_private_heads_train_and_no_round_shares_them() -> None:
    model = network(secret=True)
    defence = SecretHead(alpha2=0.3, bits=8)
    defended = defend_data(devices(), (defence,), {}, 0)
    trained = train_on_gradients(model, start(model), defended, (defence,), PLAN)
    assert set(trained) == set(start(model))
    frozen = train_on_gradients(model, start(model), defended, (defence,), replace(PLAN, rounds=1))
    assert not same(trained, frozen)


def test_codes_without_a_secret_head_are_refused() -> None:
    (device,) = defend_data(devices(1), (SecretHead(bits=8),), {}, 0)
    with pytest.raises(FedprintError, match="no secret head"):
        private_start(network(), device, 0)


def test_laplace_has_the_variance_it_says_and_heavier_tails_than_a_normal() -> None:
    noise = Laplace(sigma=0.5).on_device({"w": torch.zeros(200_000)}, torch_rng(0, "noise"))["w"]
    assert float(noise.std()) == pytest.approx(0.5, rel=0.02) and abs(float(noise.mean())) < 0.01
    assert float(noise.pow(4).mean() / noise.var() ** 2) == pytest.approx(6, rel=0.1)
