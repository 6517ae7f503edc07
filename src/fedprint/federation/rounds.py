"""The federated loop: with its engine (round_engine.py) the only caller of both defence points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedprint import params as algebra
from fedprint.federation.client_state import ClientState
from fedprint.federation.round_engine import Defence, FederationPlan, RoundEngine
from fedprint.federation.store import StoreWriter
from fedprint.rng import seed_for, torch_rng
from fedprint.types import (
    Backend,
    ClientResult,
    DataDefence,
    Device,
    Examples,
    FedprintError,
    Observation,
    Params,
    Role,
    Truth,
    UpdateDefence,
)

ROLES: tuple[Role, ...] = ("anonymous", "prior")
"""Whose devices are defended: all that take part, unless a setting of the papers leaves the adversary's own clean."""


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What a progress bar shows of a finished round; ``defence_seconds`` is what point 2 took on all its devices."""

    round: int
    clients: int
    metrics: Mapping[str, float]
    defence_seconds: float = 0.0


def cohort_size(devices: int, fraction: float) -> int:
    """Return M = max(1, C * K) (papers.md, section 1); more than the population is an error."""
    size = max(1, round(fraction * devices))
    _check_cohort(size, devices)
    return size


def _check_cohort(size: int, devices: int) -> None:
    if size > devices:
        raise FedprintError(
            f"federation.fraction: a cohort of {size} does not fit a population of {devices} devices; use at most 1.0"
        )


def settle(defences: Sequence[Defence], device_id: str, seed: int) -> tuple[Defence, ...]:
    """Return the defences as one device runs them: where strengths are a distribution, it draws its own, for good."""
    return tuple(
        defence.settled(torch_rng(seed, "strength", position, device_id)) for position, defence in enumerate(defences)
    )


def defend_data(
    devices: Sequence[Device],
    defences: Sequence[Defence],
    background: Examples,
    seed: int,
    roles: Collection[Role] = ROLES,
) -> tuple[Device, ...]:
    """Point 1: apply the data defences, in list order, to each device of ``roles`` on its own."""
    return tuple(
        _defend_device(device, defences, background, seed) if device.role in roles else device for device in devices
    )


def _defend_device(device: Device, defences: Sequence[Defence], background: Examples, seed: int) -> Device:
    examples = device.examples
    for position, defence in enumerate(settle(defences, device.device_id, seed)):
        if isinstance(defence, DataDefence):
            examples = defence.on_data(
                examples, background, torch_rng(seed, "defence-data", position, device.device_id)
            )
    return Device(device_id=device.device_id, user_id=device.user_id, role=device.role, examples=examples)


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
    private: ClientState | None = None,
) -> dict[str, Tensor]:
    """Train ``plan.rounds`` rounds of FedAvg, record every update as sent, and return the final parameters.

    ``private`` keeps what devices with a secret head never send; it is read and written here and recorded nowhere.

    Resumes after the last complete round of ``writer``. The result depends on the plan, the devices and the defences
    only: all randomness of round t comes from ``seed_for(seed, ..., t, ...)``. ``utility(t, params)`` gives metrics of
    the new global model (empty when it is not t's turn). Raises FedprintError when training diverges.
    """
    shields = {
        device.device_id: settle(defences, device.device_id, plan.seed) if device.role in roles else ()
        for device in devices
    }
    engine = RoundEngine(
        plan=plan,
        backend=backend,
        shields=shields,
        updates=[defence for defence in defences if isinstance(defence, UpdateDefence)],
        private=private,
    )
    population = sorted(devices, key=lambda device: device.device_id)
    _check_cohort(plan.cohort, len(population))
    where = population[0].examples["x"].device
    params: dict[str, Tensor] = {name: tensor.to(where) for name, tensor in writer.latest_params().items()}
    first_loss = writer.metrics()[0]["loss"] if writer.next_round else None
    with _recording(writer) as record:
        for t in range(writer.next_round, plan.rounds):
            cohort = sample_cohort(population, plan, t)
            done = engine.run(cohort, params, first_loss, t)
            params = done.params
            first_loss = done.loss if first_loss is None else first_loss
            metrics = {"loss": done.loss, "update_norm": algebra.norm(done.step), **utility(t, params)}
            record(t, *_records(cohort, done.results, done.sent, plan, t), params, metrics)
            report(RoundReport(round=t, clients=len(cohort), metrics=metrics, defence_seconds=done.seconds))
    return params


@contextmanager
def _recording(writer: StoreWriter) -> Iterator[Callable[..., None]]:
    """Yield ``writer.append`` on a thread of its own: the disk works while the next round trains.

    At most one round is in flight; a failure to write it is raised by the next call, or at the end.
    """
    with ThreadPoolExecutor(1) as disk:
        pending: Future[None] | None = None

        def record(*round_: Any) -> None:
            nonlocal pending
            if pending is not None:
                pending.result()
            pending = disk.submit(writer.append, *round_)

        yield record
        if pending is not None:
            pending.result()


def sample_cohort(population: Sequence[Device], plan: FederationPlan, t: int) -> list[Device]:
    """Return round t's cohort: M devices without replacement, in random order (slots carry no identity)."""
    order = torch.randperm(len(population), generator=torch_rng(plan.seed, "cohort", t))
    return [population[i] for i in order[: plan.cohort].tolist()]


def _records(
    cohort: Sequence[Device],
    results: Sequence[ClientResult],
    sent: Sequence[Params],
    plan: FederationPlan,
    t: int,
) -> tuple[list[Observation], list[Truth]]:
    observations, truths = [], []
    for slot, (device, result, update) in enumerate(zip(cohort, results, sent, strict=True)):
        obs_id = t * plan.cohort + slot
        observations.append(
            Observation(
                obs_id=obs_id,
                round=t,
                role=device.role,
                num_examples=result.num_examples,
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
