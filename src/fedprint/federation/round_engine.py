"""One round: clients train, defend and send, and the server takes a step; all at once or one after another."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from torch import Tensor

from fedprint import params as algebra
from fedprint.data.examples import CODE
from fedprint.federation.client_state import ClientState
from fedprint.rng import seed_for, torch_rng
from fedprint.types import (
    Aggregation,
    Backend,
    ClientJob,
    ClientResult,
    DataDefence,
    Device,
    FedprintError,
    LocalTraining,
    Params,
    UpdateDefence,
)

Defence = DataDefence | UpdateDefence

DIVERGED = 20.0
"""A round whose mean loss exceeds this multiple of the first round's has diverged."""


@dataclass(frozen=True, kw_only=True)
class FederationPlan:
    """FedAvg's constants: T ``rounds``, ``cohort`` = M devices a round, local training, and the root seed."""

    rounds: int
    cohort: int
    training: LocalTraining
    seed: int
    aggregation: Aggregation = "fedavg"


@dataclass(frozen=True, kw_only=True)
class Round:
    """A trained round: what each client returned and sent, the server's step, the new parameters, the mean loss."""

    results: list[ClientResult]
    sent: list[Params]
    step: Params
    params: dict[str, Tensor]
    loss: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RoundEngine:
    """What does not change from round to round."""

    plan: FederationPlan
    backend: Backend
    shields: Mapping[str, Sequence[Defence]]
    updates: Sequence[UpdateDefence]
    private: ClientState | None

    def run(self, cohort: Sequence[Device], params: dict[str, Tensor], first_loss: float | None, t: int) -> Round:
        """Train the cohort, all at once or in turn, and apply what it sends."""
        turns = [[device] for device in cohort] if self.plan.aggregation == "round-robin" else [cohort]
        results: list[ClientResult] = []
        sent: list[Params] = []
        steps: list[Params] = []
        seconds = 0.0
        for turn in turns:
            trained = self._train(turn, params, t)
            results += trained
            loss = _mean_loss(results, first_loss, self.plan, t)
            started = time.perf_counter()
            shared = [self._sent(result, t) for result in trained]
            seconds += time.perf_counter() - started
            sent += shared
            place = (t, len(steps)) if len(turns) > 1 else (t,)
            steps.append(self._step(trained, shared, place))
            params = algebra.add(params, steps[-1])
        step = reduce(algebra.add, steps)
        return Round(results=results, sent=sent, step=step, params=params, loss=loss, seconds=seconds)

    def _train(self, turn: Sequence[Device], params: Params, t: int) -> list[ClientResult]:
        """Train the clients; what those with a secret head learned stays with them."""
        jobs = [
            ClientJob(
                device_id=d.device_id,
                examples=d.examples,
                seed=seed_for(self.plan.seed, "client", t, d.device_id),
                private=self._own(d, t),
            )
            for d in turn
        ]
        results = list(self.backend.run(jobs, params, self.plan.training))
        for result in results:
            if result.private and self.private is not None:
                self.private.save(result.device_id, t, result.private)
        return results

    def _sent(self, result: ClientResult, t: int) -> Params:
        shield = self.shields.get(result.device_id, ())
        return send(result.update, shield, self.plan.seed, t, result.device_id)

    def _own(self, device: Device, t: int) -> Params:
        """Return the private parameters of a device: none unless it has a secret head."""
        if CODE not in device.examples:
            return {}
        if self.private is None:
            raise FedprintError(f"device {device.device_id} has a secret head, but no ClientState to keep it; give one")
        where = device.examples["x"].device
        return {name: tensor.to(where) for name, tensor in self.private.load(device.device_id, t).items()}

    def _step(self, trained: Sequence[ClientResult], sent: Sequence[Params], place: tuple[int, ...]) -> Params:
        """Return what the server applies: the mean after the defences' second part."""
        step = algebra.weighted_mean(sent, _weights(trained, self.updates, self.plan.aggregation))
        for position, defence in reversed(list(enumerate(self.updates))):
            rng = torch_rng(self.plan.seed, "defence-server", position, *place)
            step = dict(defence.on_server(step, len(trained), rng))
        return step


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


def _weights(
    results: Sequence[ClientResult], defences: Sequence[UpdateDefence], aggregation: Aggregation
) -> list[float]:
    """Return the devices' weights in the mean: their numbers of examples, or all equal where a guarantee is claimed.

    Noise that hides one clipped update in a sum must not meet a device that counts for several (client-dp, alg. 1).
    """
    if aggregation != "fedavg" or any(defence.event() is not None for defence in defences):
        return [1.0] * len(results)
    return [float(result.num_examples) for result in results]


def _badness(result: ClientResult) -> float:
    """Return the loss, infinite where the loss or any entry of the update is not finite."""
    return result.loss if math.isfinite(result.loss + algebra.norm(result.update)) else math.inf


def send(update: Params, defences: Sequence[Defence], seed: int, t: int, device_id: str) -> Params:
    """Point 2: return what a device sends in round t, given its settled defences."""
    for position, defence in enumerate(d for d in defences if isinstance(d, UpdateDefence)):
        update = defence.on_device(update, torch_rng(seed, "defence-device", position, t, device_id))
    return update
