"""The federated loop: it draws cohorts, records every round and obeys the budget (one round: round_engine.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedprint import params as algebra
from fedprint.defences.points import ROLES, Defence, settle
from fedprint.defences.secure_aggregation import as_seen, secure_aggregation, shared_counts
from fedprint.federation.client_state import ClientState
from fedprint.federation.cohorts import FederationPlan, check_cohort, cohort_size, refused_in_turn, sample_cohort
from fedprint.federation.diagnostics import between_clients
from fedprint.federation.ledger import Ledger
from fedprint.federation.privacy import Privacy, private_defence
from fedprint.federation.round_engine import Round, RoundEngine, device_weights
from fedprint.lab.gpus import beside_training
from fedprint.rng import seed_for
from fedprint.store.writer import StoreWriter
from fedprint.types import (
    Backend,
    Device,
    FedprintError,
    Observation,
    Params,
    Role,
    Truth,
    UpdateDefence,
)

__all__ = ["FederationPlan", "cohort_size", "federate", "pseudonym", "sample_cohort"]


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What a progress bar shows of a finished round; ``defence_seconds`` is the time of point 2 on all its devices."""

    round: int
    clients: int
    metrics: Mapping[str, float]
    defence_seconds: float = 0.0


def federate(
    *,
    devices: Sequence[Device],
    plan: FederationPlan,
    backend: Backend,
    defences: Sequence[Defence],
    writer: StoreWriter,
    utility: Callable[[int, Params], Mapping[str, float]],
    report: Callable[[RoundReport], None],
    roles: Collection[Role] = ROLES,
    ledger: Ledger | None = None,
    private: ClientState | None = None,
) -> dict[str, Tensor]:
    """Train ``plan.rounds`` rounds of FedAvg, record every update as the server sees it, return the final parameters.

    Resumes after the last complete round of ``writer``. The result depends on the plan, the devices and the defences
    only: all randomness of round t comes from ``seed_for(seed, ..., t, ...)``. ``utility(t, params)`` gives metrics of
    the new global model (empty in rounds without an evaluation). With a ``ledger``, training ends before the first
    round that its budget does not allow, and a round's line is on the disk before its model is. ``private`` keeps the
    parameters that devices with a secret head never send; they are not recorded. Raises FedprintError when training
    diverges, and for settings that exclude each other.
    """
    updates = [defence for defence in defences if isinstance(defence, UpdateDefence)]
    population = sorted(devices, key=lambda device: device.device_id)
    check_cohort(max(plan.expected(t) for t in range(plan.rounds)), len(population))
    noised = private_defence(updates)
    if refused := refused_in_turn(plan.aggregation, plan.sampling, plan.momentum, [noised] if noised else []):
        raise FedprintError(refused)
    where = population[0].examples["x"].device
    params: dict[str, Tensor] = {name: tensor.to(where) for name, tensor in writer.latest_params().items()}
    velocity = _velocity(params, writer, plan)
    history = writer.metrics()
    first_loss = next((metrics["loss"] for metrics in history if "loss" in metrics), None)
    engine = RoundEngine(
        plan=plan,
        backend=backend,
        shields={
            device.device_id: settle(defences, device.device_id, plan.seed) if device.role in roles else ()
            for device in devices
        },
        updates=updates,
        private=private,
        privacy=None if noised is None else Privacy(noised, plan, len(population), history, roles),
        ledger=ledger,
    )
    with _recording(writer) as record:
        for t in range(writer.next_round, plan.rounds):
            if ledger is not None and not ledger.allows(t):
                break
            cohort = sample_cohort(population, plan, t)
            before, done = params, engine.run(cohort, params, first_loss, t, velocity)
            params, metrics = done.params, done.metrics
            first_loss = metrics.get("loss") if first_loss is None else first_loss
            metrics |= between_clients([result.update for result in done.results]) if plan.diagnostics else {}
            metrics |= utility(t, params)
            record(t, *_records(cohort, done, defences, plan, t), params, metrics)
            report(RoundReport(round=t, clients=len(cohort), metrics=metrics, defence_seconds=done.seconds))
            velocity = algebra.add(params, before, -1.0) if plan.momentum else {}
    return params


def _velocity(params: Params, writer: StoreWriter, plan: FederationPlan) -> dict[str, Tensor]:
    """Return the last change of the global model, which the server's momentum adds; empty before the first round.

    It is the difference of two stored models, so that a resumed run has the same bits.
    """
    if not plan.momentum or not writer.next_round:
        return {}
    before = writer.params_before_last()
    return algebra.add(params, {name: tensor.to(params[name]) for name, tensor in before.items()}, -1.0)


@contextmanager
def _recording(writer: StoreWriter) -> Iterator[Callable[..., None]]:
    """Yield ``writer.append`` on a separate thread, so that a round is written while the next one trains.

    At most one round is being written; a failure is raised by the next call, or at the end.
    """
    with ThreadPoolExecutor(1) as disk:
        pending: Future[None] | None = None

        def record(*round_: Any) -> None:
            nonlocal pending
            if pending is not None:
                pending.result()
            pending = disk.submit(beside_training(writer.append), *round_)

        yield record
        if pending is not None:
            pending.result()


def _records(
    cohort: Sequence[Device], done: Round, defences: Sequence[Defence], plan: FederationPlan, t: int
) -> tuple[list[Observation], list[Truth]]:
    secure, roles = secure_aggregation(defences), [device.role for device in cohort]
    weights = device_weights(done.results, [d for d in defences if isinstance(d, UpdateDefence)], plan)
    seen = as_seen(done.sent, weights, roles, secure)
    counts = shared_counts([result.num_examples for result in done.results], roles, secure)
    observations, truths = [], []
    for slot, (device, update, count) in enumerate(zip(cohort, seen, counts, strict=True)):
        obs_id = t * plan.rows + slot
        observations.append(
            Observation(
                obs_id=obs_id,
                round=t,
                role=device.role,
                num_examples=count,
                pseudonym=pseudonym(plan.seed, device.device_id),
                user_id=device.user_id if device.role == "prior" else None,
                update=update,
            )
        )
        truths.append(Truth(obs_id=obs_id, user_id=device.user_id, device_id=device.device_id))
    return observations, truths


def pseudonym(seed: int, device_id: str) -> str:
    """Return the random name under which the server knows a device over all rounds."""
    return f"{seed_for(seed, 'pseudonym', device_id):016x}"
