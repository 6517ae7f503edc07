"""Federations that record no update, because only their final models matter: all clients together, and each alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

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
    on_round: Callable[[int, float], None] | None = None,
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
    return _rounds(engine, devices, initial, on_round)


def train_alone(
    devices: Sequence[Device],
    plan: FederationPlan,
    backend: Backend,
    initial: Params,
    private: ClientState | None = None,
) -> Iterator[tuple[Device, dict[str, Tensor]]]:
    """Yield each device with the parameters it reaches in ``plan.rounds`` rounds on its own examples.

    This is the baseline without a federation (spn, figure 7 and section 4.3). All start from ``initial`` and draw the
    same batches as in the federation of the same plan. Nothing is sent, so neither update defences nor the server's
    momentum act; a secret head (``private``) still regularises.
    """
    engine = RoundEngine(plan=replace(plan, cohort=1), backend=backend, shields={}, updates=(), private=private)
    for device in devices:
        yield device, _rounds(engine, [device], initial)


def _rounds(
    engine: RoundEngine,
    devices: Sequence[Device],
    initial: Params,
    on_round: Callable[[int, float], None] | None = None,
) -> dict[str, Tensor]:
    """Return the parameters after all rounds of ``devices`` from ``initial``, and report each round's mean loss."""
    params = {name: tensor.to(devices[0].examples["x"].device) for name, tensor in initial.items()}
    first_loss: float | None = None
    for t in range(engine.plan.rounds):
        done = engine.run(devices, params, first_loss, t)
        params, first_loss = done.params, done.metrics["loss"] if first_loss is None else first_loss
        if on_round is not None:
            on_round(t, done.metrics["loss"])
    return params
