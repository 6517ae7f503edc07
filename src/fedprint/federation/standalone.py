"""Every client alone: the baseline without a federation (spn, figure 7 and section 4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from fedprint.federation.client_state import ClientState
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.round_engine import RoundEngine
from fedprint.types import Backend, Device, Params


def train_alone(
    devices: Sequence[Device],
    plan: FederationPlan,
    backend: Backend,
    initial: Params,
    private: ClientState | None = None,
) -> Iterator[tuple[Device, dict[str, Tensor]]]:
    """Yield each device with the parameters it reaches in ``plan.rounds`` rounds on its own examples.

    All start from ``initial`` and draw the same batches as in the federation of the same plan. Nothing is sent, so
    neither update defences nor the server's momentum act; a secret head (``private``) still regularises.
    """
    engine = RoundEngine(plan=replace(plan, cohort=1), backend=backend, shields={}, updates=(), private=private)
    for device in devices:
        params = {name: tensor.to(device.examples["x"].device) for name, tensor in initial.items()}
        first_loss: float | None = None
        for t in range(plan.rounds):
            done = engine.run([device], params, first_loss, t)
            params, first_loss = done.params, done.metrics["loss"] if first_loss is None else first_loss
        yield device, params
