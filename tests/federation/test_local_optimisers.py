"""Clients step as torch's optimisers do, and stacked clients as single ones."""

from __future__ import annotations

from dataclasses import replace

import federation_cases as cases
import pytest
import torch
from torch import Tensor

from fedprint.federation.backends import make_backend, trial
from fedprint.federation.client import batch_of, batch_schedule
from fedprint.federation.local_optimisers import Stepper
from fedprint.kinds.federation.config import FederationConfig
from fedprint.types import ClientJob, FedprintError, LocalTraining, Params

TRAININGS = {
    "sgd": LocalTraining(epochs=2, batch_size=5, lr=0.2),
    "momentum": LocalTraining(epochs=2, batch_size=5, lr=0.05, optimiser="momentum"),
    "adam": LocalTraining(epochs=2, batch_size=5, lr=1e-2, optimiser="adam"),
}
DOUBLE = torch.float64


def jobs() -> list[ClientJob]:
    return [
        ClientJob(device_id=f"d{i}", examples=cases.examples("cnn", n, seed=i, dtype=DOUBLE), seed=i)
        for i, n in enumerate(cases.SIZES)
    ]


def by_torch(net: torch.nn.Module, params: Params, job: ClientJob, training: LocalTraining) -> dict[str, Tensor]:
    cases.load(net, params)
    parameters = list(net.parameters())
    if training.optimiser == "adam":
        optimiser: torch.optim.Optimizer = torch.optim.Adam(parameters, lr=training.lr)
    else:
        momentum = 0.9 if training.optimiser == "momentum" else 0.0
        optimiser = torch.optim.SGD(parameters, lr=training.lr, momentum=momentum)
    for index in batch_schedule(len(job.examples["y"]), training, job.seed):
        optimiser.zero_grad()
        net(batch_of(job.examples, index)).mean().backward()
        optimiser.step()
    return {name: p.detach() - params[name] for name, p in net.named_parameters()}


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("backend", ["sequential", "vectorised:3"])
def test_a_client_steps_as_torch_does(backend: str, name: str) -> None:
    net = cases.model("cnn", DOUBLE)
    params = cases.start(net)
    expected = [by_torch(net, params, job, TRAININGS[name]) for job in jobs()]
    for result, update in zip(make_backend(backend, net).run(jobs(), params, TRAININGS[name]), expected, strict=True):
        assert cases.distance(result.update, update) < 1e-9, result.device_id
        assert max(float(t.abs().max()) for t in update.values()) > 1e-4


def test_optimisers_differ_and_forget_between_rounds() -> None:
    net = cases.model("cnn", DOUBLE)
    params, job = cases.start(net), jobs()[2]
    backend = make_backend("sequential", net)
    updates = {}
    for name, training in TRAININGS.items():
        first, second = (next(iter(backend.run([job], params, training))).update for _ in range(2))
        assert cases.distance(first, second) == 0
        updates[name] = first
    slow = replace(TRAININGS["momentum"], optimiser="sgd")
    without = next(iter(backend.run([job], params, slow))).update
    assert cases.distance(updates["momentum"], without) > 1e-3
    assert cases.distance(updates["adam"], updates["sgd"]) > 1e-3


def test_plain_sgd_keeps_its_bits() -> None:
    rng = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(50, generator=rng), torch.randn(50, generator=rng)
    moved = start.clone()
    Stepper(TRAININGS["sgd"], [moved])([gradient])
    expected = start.clone()
    torch._foreach_add_([expected], [gradient], alpha=-0.2)
    assert torch.equal(moved, expected)


def test_the_configuration_reaches_the_clients() -> None:
    assert FederationConfig().local_training().optimiser == "sgd"
    assert FederationConfig(optimiser="adam", lr=1e-3).local_training() == LocalTraining(
        epochs=1, batch_size=10, lr=1e-3, optimiser="adam"
    )
    with pytest.raises(
        FedprintError, match=r"federation.optimiser: unknown optimiser 'lion'; choose sgd, momentum or adam"
    ):
        Stepper(replace(TRAININGS["sgd"], optimiser="lion"), [])  # type: ignore[arg-type]


def test_the_trial_of_backends_runs_every_optimiser() -> None:
    net = cases.model("cnn")
    few = [ClientJob(device_id="d", examples=cases.examples("cnn", 7, seed=0), seed=0)]
    assert trial(net, few, cases.start(net), TRAININGS["adam"])
