"""The federated loop: the only caller of both defence points."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedprint import params as algebra
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.points import ROLES, Defence, has_guarantee, send, settle
from fedprint.federation.cohorts import FederationPlan, check_cohort, cohort_size, sample_cohort
from fedprint.federation.diagnostics import between_clients
from fedprint.federation.ledger import Ledger
from fedprint.federation.privacy import Privacy, PrivateRound, private_defence
from fedprint.federation.store import StoreWriter
from fedprint.rng import seed_for, torch_rng
from fedprint.types import (
    Backend,
    ClientJob,
    ClientResult,
    Device,
    FedprintError,
    Observation,
    Params,
    Role,
    Truth,
    UpdateDefence,
)

__all__ = ["FederationPlan", "cohort_size", "federate", "pseudonym", "sample_cohort"]

DIVERGED = 20.0
"""A round whose mean loss exceeds this multiple of the first round's has diverged."""


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What a progress bar shows of a finished round; ``defence_seconds`` is what point 2 took on all its devices."""

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
) -> dict[str, Tensor]:
    """Train ``plan.rounds`` rounds of FedAvg, record every update as sent, and return the final parameters.

    Resumes after the last complete round of ``writer``. The result depends on the plan, the devices and the defences
    only: all randomness of round t comes from ``seed_for(seed, ..., t, ...)``. ``utility(t, params)`` gives metrics of
    the new global model (empty when it is not t's turn). Where there is a ``ledger``, a round that its budget does not
    allow is not begun: training ends with the model of the round before; and what a round spends is on the disk before
    its model is. Raises FedprintError when training diverges.
    """
    updates = [defence for defence in defences if isinstance(defence, UpdateDefence)]
    shields = {
        device.device_id: settle(defences, device.device_id, plan.seed) if device.role in roles else ()
        for device in devices
    }
    population = sorted(devices, key=lambda device: device.device_id)
    check_cohort(max(plan.expected(t) for t in range(plan.rounds)), len(population))
    where = population[0].examples["x"].device
    params: dict[str, Tensor] = {name: tensor.to(where) for name, tensor in writer.latest_params().items()}
    velocity = _velocity(params, writer, plan)
    history = writer.metrics()
    first_loss = next((metrics["loss"] for metrics in history if "loss" in metrics), None)
    private = private_defence(updates)
    privacy = None if private is None else Privacy(private, plan, len(population), history)
    with _recording(writer) as record:
        for t in range(writer.next_round, plan.rounds):
            if ledger is not None and not ledger.allows(t):
                break
            cohort = sample_cohort(population, plan, t)
            results = _run_clients(cohort, params, plan, backend, t)
            metrics = _mean_loss(results, first_loss, plan, t)
            first_loss = metrics.get("loss") if first_loss is None else first_loss
            now = None if privacy is None else privacy.round(t, [algebra.norm(result.update) for result in results])
            started = time.perf_counter()
            sent = [send(r.update, _at(shields[r.device_id], now), plan.seed, t, r.device_id) for r in results]
            seconds = time.perf_counter() - started
            step = _aggregate(sent, _weights(results, updates), _at(updates, now), plan, t, like=params)
            velocity = algebra.add(step, velocity, plan.momentum) if velocity else step
            params, before = algebra.add(params, velocity), params
            metrics |= {"update_norm": algebra.norm(velocity), **({} if now is None else now.metrics)}
            metrics |= between_clients([result.update for result in results]) if plan.diagnostics else {}
            metrics |= utility(t, params)
            if ledger is not None and now is not None:
                ledger.spend(now.entry)
            record(t, *_records(cohort, results, sent, plan, t), params, metrics)
            report(RoundReport(round=t, clients=len(cohort), metrics=metrics, defence_seconds=seconds))
            velocity = algebra.add(params, before, -1.0) if plan.momentum else {}
    return params


def _velocity(params: Params, writer: StoreWriter, plan: FederationPlan) -> dict[str, Tensor]:
    """Return the last change of the global model, empty before the first: what the server's momentum goes on with.

    Always the difference of two models as they are stored, so that a resumed run has the same one to the bit.
    """
    if not plan.momentum or not writer.next_round:
        return {}
    before = writer.params_before_last()
    return algebra.add(params, {name: tensor.to(params[name]) for name, tensor in before.items()}, -1.0)


def _at(defences: Sequence[Any], now: PrivateRound | None) -> tuple[Any, ...]:
    """Return the defences with dp-fedavg as this round runs it."""
    return tuple(now.defence if now is not None and isinstance(d, DpFedAvg) else d for d in defences)


def _aggregate(
    sent: Sequence[Params],
    weights: Sequence[float],
    defences: Sequence[UpdateDefence],
    plan: FederationPlan,
    t: int,
    *,
    like: Params,
) -> dict[str, Tensor]:
    """Return what the server adds to the global model: the mean of what was sent, through the server's defences.

    Where a guarantee is claimed, a Poisson sample's sum is divided by the planned m_t: how many came is a secret.
    """
    expected = plan.expected(t)
    secret = plan.sampling == "poisson" and any(defence.event() is not None for defence in defences)
    mean = algebra.weighted_mean(sent, weights, total=float(expected) if secret else None)
    mean = mean or {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    for position, defence in reversed(list(enumerate(defences))):
        mean = dict(defence.on_server(mean, expected, torch_rng(plan.seed, "defence-server", position, t)))
    return mean


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


def _run_clients(
    cohort: Sequence[Device], params: Params, plan: FederationPlan, backend: Backend, t: int
) -> list[ClientResult]:
    jobs = [
        ClientJob(device_id=d.device_id, examples=d.examples, seed=seed_for(plan.seed, "client", t, d.device_id))
        for d in cohort
    ]
    return list(backend.run(jobs, params, plan.training))


def _mean_loss(results: Sequence[ClientResult], first: float | None, plan: FederationPlan, t: int) -> dict[str, float]:
    """Return the mean ``loss`` over examples, nothing for an empty round. Raises FedprintError where it explodes."""
    if not results:
        return {}
    worst = max(results, key=_badness)
    mean = sum(result.loss * result.num_examples for result in results) / sum(r.num_examples for r in results)
    if math.isinf(_badness(worst)) or (first is not None and mean > DIVERGED * first):
        before = "" if first is None else f" (mean of the first round {first:.4g})"
        raise FedprintError(
            f"training diverged in round {t}: device {worst.device_id} has loss {worst.loss:.4g}{before} and update "
            f"norm {algebra.norm(worst.update):.4g}; lower federation.lr (now {plan.training.lr})"
        )
    return {"loss": mean}


def _weights(results: Sequence[ClientResult], defences: Sequence[UpdateDefence]) -> list[float]:
    """Return the devices' weights in the mean: their numbers of examples, or all equal where a guarantee is claimed.

    Noise that hides one clipped update in a sum must not meet a device that counts for several (client-dp, alg. 1).
    """
    if has_guarantee(defences):
        return [1.0] * len(results)
    return [float(result.num_examples) for result in results]


def _badness(result: ClientResult) -> float:
    """Return the loss, infinite where the loss or any entry of the update is not finite."""
    return result.loss if math.isfinite(result.loss + algebra.norm(result.update)) else math.inf


def _records(
    cohort: Sequence[Device],
    results: Sequence[ClientResult],
    sent: Sequence[Params],
    plan: FederationPlan,
    t: int,
) -> tuple[list[Observation], list[Truth]]:
    observations, truths = [], []
    for slot, (device, result, update) in enumerate(zip(cohort, results, sent, strict=True)):
        obs_id = t * plan.rows + slot
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
