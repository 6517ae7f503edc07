"""A federation of all clients in every round, without a record of their updates: only its final model matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from fedprint.defences.points import Defence, settle
from fedprint.federation.client_state import ClientState
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.round_engine import RoundEngine
from fedprint.types import Backend, Device, Params, UpdateDefence


def train_together(
    devices: Sequence[Device],
    plan: FederationPlan,
    backend: Backend,
    initial: Params,
    defences: Sequence[Defence] = (),
    private: ClientState | None = None,
    on_round: Callable[[int, float], None] = lambda t, loss: None,
) -> dict[str, Tensor]:
    """Return the global parameters after ``plan.rounds`` rounds of all ``devices``, in their order.

    The rounds are those of :func:`fedprint.federation.rounds.federate` without its store, so there is no resume. Point
    1 has already acted on the devices. ``on_round`` is called with each round's number and mean loss. Raises
    FedprintError when training diverges.
    """
    engine = RoundEngine(
        plan=plan,
        backend=backend,
        shields={device.device_id: settle(defences, device.device_id, plan.seed) for device in devices},
        updates=[defence for defence in defences if isinstance(defence, UpdateDefence)],
        private=private,
    )
    params = {name: tensor.to(devices[0].examples["x"].device) for name, tensor in initial.items()}
    first_loss: float | None = None
    for t in range(plan.rounds):
        done = engine.run(devices, params, first_loss, t)
        params, first_loss = done.params, done.metrics["loss"] if first_loss is None else first_loss
        on_round(t, done.metrics["loss"])
    return params
