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
from fedprint.defences.points import ROLES, Defence, has_guarantee, send, settle
from fedprint.federation.store import StoreWriter
from fedprint.rng import seed_for, torch_rng
from fedprint.types import (
    Backend,
    ClientJob,
    ClientResult,
    Device,
    FedprintError,
    LocalTraining,
    Observation,
    Params,
    Role,
    Truth,
    UpdateDefence,
)

DIVERGED = 20.0
"""A round whose mean loss exceeds this multiple of the first round's has diverged."""


@dataclass(frozen=True, kw_only=True)
class FederationPlan:
    """FedAvg's constants: T ``rounds``, ``cohort`` = M devices a round, local training, and the root seed."""

    rounds: int
    cohort: int
    training: LocalTraining
    seed: int


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
) -> dict[str, Tensor]:
    """Train ``plan.rounds`` rounds of FedAvg, record every update as sent, and return the final parameters.

    Resumes after the last complete round of ``writer``. The result depends on the plan, the devices and the defences
    only: all randomness of round t comes from ``seed_for(seed, ..., t, ...)``. ``utility(t, params)`` gives metrics of
    the new global model (empty when it is not t's turn). Raises FedprintError when training diverges.
    """
    updates = [defence for defence in defences if isinstance(defence, UpdateDefence)]
    shields = {
        device.device_id: settle(defences, device.device_id, plan.seed) if device.role in roles else ()
        for device in devices
    }
    population = sorted(devices, key=lambda device: device.device_id)
    _check_cohort(plan.cohort, len(population))
    where = population[0].examples["x"].device
    params: dict[str, Tensor] = {name: tensor.to(where) for name, tensor in writer.latest_params().items()}
    first_loss = writer.metrics()[0]["loss"] if writer.next_round else None
    with _recording(writer) as record:
        for t in range(writer.next_round, plan.rounds):
            cohort = sample_cohort(population, plan, t)
            results = _run_clients(cohort, params, plan, backend, t)
            loss = _mean_loss(results, first_loss, plan, t)
            first_loss = loss if first_loss is None else first_loss
            started = time.perf_counter()
            sent = [send(r.update, shields[r.device_id], plan.seed, t, r.device_id) for r in results]
            seconds = time.perf_counter() - started
            mean = algebra.weighted_mean(sent, _weights(results, updates))
            for position, defence in reversed(list(enumerate(updates))):
                mean = dict(defence.on_server(mean, len(cohort), torch_rng(plan.seed, "defence-server", position, t)))
            params = algebra.add(params, mean)
            metrics = {"loss": loss, "update_norm": algebra.norm(mean), **utility(t, params)}
            record(t, *_records(cohort, results, sent, plan, t), params, metrics)
            report(RoundReport(round=t, clients=len(cohort), metrics=metrics, defence_seconds=seconds))
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


def _run_clients(
    cohort: Sequence[Device], params: Params, plan: FederationPlan, backend: Backend, t: int
) -> list[ClientResult]:
    jobs = [
        ClientJob(device_id=d.device_id, examples=d.examples, seed=seed_for(plan.seed, "client", t, d.device_id))
        for d in cohort
    ]
    return list(backend.run(jobs, params, plan.training))


def _mean_loss(results: Sequence[ClientResult], first: float | None, plan: FederationPlan, t: int) -> float:
    worst = max(results, key=_badness)
    mean = sum(result.loss * result.num_examples for result in results) / sum(r.num_examples for r in results)
    if math.isinf(_badness(worst)) or (first is not None and mean > DIVERGED * first):
        before = "" if first is None else f" (mean of the first round {first:.4g})"
        raise FedprintError(
            f"training diverged in round {t}: device {worst.device_id} has loss {worst.loss:.4g}{before} and update "
            f"norm {algebra.norm(worst.update):.4g}; lower federation.lr (now {plan.training.lr})"
        )
    return mean


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
