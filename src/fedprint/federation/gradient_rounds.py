"""Federated SGD: every message is the gradient of one batch (spn, algorithm 4; papers.md 4.5).

The engine of :mod:`fedprint.federation.rounds` sends updates of local epochs. Mechanisms of the spn paper add noise of
sigma to every entry of a *gradient*, and its attacks start from a gradient. So each message is a gradient here, and the
server's Adam takes a step along each. Training and attack then use the same mechanism at the same strength.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call

from fedprint import params as algebra
from fedprint.data.examples import CODE, take
from fedprint.defences.points import Defence, defend_update, settle
from fedprint.federation.client import batch_schedule
from fedprint.models.base import FedModule
from fedprint.models.dual_head import DualHead
from fedprint.rng import seed_for, torch_rng
from fedprint.types import Device, Examples, FedprintError, LocalTraining, Params


@dataclass(frozen=True, kw_only=True)
class GradientPlan:
    """``rounds`` in which every client sends a gradient of ``batch_size`` examples; the server's Adam has rate ``lr``.

    round-robin: the server steps after each client, and the next one downloads the result; mean: once per round.
    """

    rounds: int
    batch_size: int
    lr: float
    seed: int
    aggregation: Literal["round-robin", "mean"]


def client_gradient(
    model: FedModule, shared: Params, private: Params, examples: Examples
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the gradients of the mean loss of ``examples`` for the shared and for the private parameters.

    Only the structure of ``model`` is used, not its parameters. With the columns of a secret head the loss is that of
    the whole dual network.
    """
    return _gradient(model, shared, private, examples)[1:]


def _gradient(
    model: FedModule, shared: Params, private: Params, examples: Examples
) -> tuple[float, dict[str, Tensor], dict[str, Tensor]]:
    """Return the mean loss and its gradients."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in {**shared, **private}.items()}
    loss = functional_call(model, leaves, (examples,)).mean()
    values = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    gradients = dict(zip(leaves, values, strict=True))
    of_shared, of_private = ({name: gradients[name] for name in params} for params in (shared, private))
    return float(loss.detach()), of_shared, of_private


def private_start(model: FedModule, device: Device, seed: int) -> dict[str, Tensor]:
    """Return the private parameters with which a device begins: none without a secret head."""
    if CODE not in device.examples:
        return {}
    if not isinstance(model, DualHead):
        raise FedprintError(
            f"device {device.device_id} has codes, but {type(model).__name__} has no secret head; use a DualHead"
        )
    return model.draw_private(torch_rng(seed, "secret-head", device.device_id))


def train_on_gradients(
    model: FedModule,
    initial: Params,
    devices: Sequence[Device],
    defences: Sequence[Defence],
    plan: GradientPlan,
    on_round: Callable[[int, float], None] = lambda t, loss: None,
) -> dict[str, Tensor]:
    """Return the shared parameters after ``plan.rounds`` rounds; ``devices`` have been through point 1 already.

    A client's update defences act on each gradient before it is sent. Each client keeps its private parameters and
    trains them with its own Adam at the same rate. ``on_round`` is called with each round's number and mean loss.
    Raises FedprintError when a gradient is not finite.
    """
    shields = {device.device_id: settle(defences, device.device_id, plan.seed) for device in devices}
    server = _Adam(initial, plan.lr)
    like = next(iter(initial.values()))
    private_parts = {
        device.device_id: _Adam(
            {name: tensor.to(like) for name, tensor in private_start(model, device, plan.seed).items()}, plan.lr
        )
        for device in devices
    }
    batches = {device.device_id: _batches(device, plan) for device in devices}
    for t in range(plan.rounds):
        waiting: list[Params] = []
        losses: list[float] = []
        for device in devices:
            name = device.device_id
            batch = take(device.examples, next(batches[name]))
            loss, gradient, private = _gradient(model, server.params, private_parts[name].params, batch)
            losses.append(loss)
            _check_finite(gradient, name, t)
            private_parts[name].step(private)
            waiting.append(defend_update(gradient, shields[name], plan.seed, t, name))
            if plan.aggregation == "round-robin":
                server.step(waiting.pop())
        if waiting:
            server.step(algebra.weighted_mean(waiting, [1.0] * len(waiting)))
        on_round(t, fmean(losses))
    return dict(server.params)


class _Adam:
    """Parameters that torch's Adam trains."""

    def __init__(self, start: Params, lr: float) -> None:
        self._leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in start.items()}
        self._optimiser = torch.optim.Adam(list(self._leaves.values()), lr=lr) if start else None

    @property
    def params(self) -> Mapping[str, Tensor]:
        """The current parameters."""
        return {name: leaf.detach() for name, leaf in self._leaves.items()}

    def step(self, gradient: Params) -> None:
        """Take one step along ``gradient``."""
        if self._optimiser is None:
            return
        for name, leaf in self._leaves.items():
            leaf.grad = gradient[name]
        self._optimiser.step()


def _batches(device: Device, plan: GradientPlan) -> Iterator[Tensor]:
    """Yield the batches of a device without end, epoch by epoch."""
    once = LocalTraining(epochs=1, batch_size=plan.batch_size, lr=plan.lr)
    epoch = 0
    while True:
        seed = seed_for(plan.seed, "batches", device.device_id, epoch)
        yield from batch_schedule(len(device.examples["y"]), once, seed)
        epoch += 1


def _check_finite(gradient: Params, device_id: str, t: int) -> None:
    if not all(bool(tensor.isfinite().all()) for tensor in gradient.values()):
        raise FedprintError(
            f"training diverged in round {t}: the gradient of {device_id} is not finite; lower training.lr"
        )
