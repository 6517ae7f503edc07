"""One round: clients train, defend and send, then the server takes a step; all together or one after another."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from fedprint import params as algebra
from fedprint.data.examples import CODE
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.points import Defence, defend_count, defend_update, has_guarantee
from fedprint.federation.client_state import ClientState
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.ledger import Ledger
from fedprint.federation.privacy import Privacy, PrivateRound
from fedprint.rng import seed_for
from fedprint.types import Backend, ClientJob, ClientResult, Device, FedprintError, Params, UpdateDefence

DIVERGED = 20.0
"""A round whose mean loss exceeds this multiple of the first round's has diverged."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """A trained round: what each client returned and sent, and the new parameters.

    ``metrics`` are recorded with it: ``loss`` (none in an empty round), ``update_norm``, those of dp-fedavg.
    ``seconds`` is the time of point 2 on all devices.
    """

    results: list[ClientResult]
    sent: list[Params]
    params: dict[str, Tensor]
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RoundEngine:
    """Runs rounds; its fields do not change from round to round.

    ``private`` keeps the parameters that clients never send, ``privacy`` settles dp-fedavg for each round and
    ``ledger`` records what that spends; each may be None.
    """

    plan: FederationPlan
    backend: Backend
    shields: Mapping[str, Sequence[Defence]]
    updates: Sequence[UpdateDefence]
    private: ClientState | None
    privacy: Privacy | None = None
    ledger: Ledger | None = None

    def run(
        self,
        cohort: Sequence[Device],
        params: dict[str, Tensor],
        first_loss: float | None,
        t: int,
        velocity: Params | None = None,
    ) -> Round:
        """Train the cohort, together or one by one, and apply what it sends; ``velocity`` is for server momentum.

        The round's line is in the ledger before any of its noise is drawn.
        """
        in_turn = self.plan.aggregation == "round-robin"
        turns = [[device] for device in cohort] if in_turn else [cohort]
        now = self._spend(t, ()) if in_turn else None  # refused_in_turn allows no rule that needs the norms
        results: list[ClientResult] = []
        sent: list[Params] = []
        steps: list[Params] = []
        norms: list[float] = []
        loss: dict[str, float] = {}
        seconds = 0.0
        for turn in turns:
            trained = self._train(turn, params, t)
            results += trained
            norms += algebra.norms([result.update for result in trained])
            loss = _mean_loss(results, norms, first_loss, self.plan, t)
            now = now if in_turn else self._spend(t, norms)
            started = time.perf_counter()
            shared = [self._sent(result, now, t) for result in trained]
            seconds += time.perf_counter() - started
            sent += shared
            path = (t, len(steps)) if len(turns) > 1 else (t,)
            step = self._step(trained, shared, _at(self.updates, now), path, like=params)
            steps.append(algebra.add(step, velocity, self.plan.momentum) if velocity else step)
            params = algebra.add(params, steps[-1])
        norm = algebra.norm(reduce(algebra.add, steps)) if steps else 0.0
        metrics = {**loss, "update_norm": norm, **({} if now is None else now.metrics)}
        return Round(results=results, sent=sent, params=params, metrics=metrics, seconds=seconds)

    def _spend(self, t: int, norms: Sequence[float]) -> PrivateRound | None:
        """Return dp-fedavg as this round of updates of these norms runs it, after writing its line into the ledger."""
        if self.privacy is None:
            return None
        now = self.privacy.round(t, norms)
        if self.ledger is not None:
            self.ledger.spend(now.entry)
        return now

    def _train(self, turn: Sequence[Device], params: Params, t: int) -> list[ClientResult]:
        """Train the clients; those with a secret head save their private parameters."""
        jobs = [
            ClientJob(
                device_id=d.device_id,
                examples=d.examples,
                seed=seed_for(self.plan.seed, "client", t, d.device_id),
                private=self._own(d, t),
            )
            for d in turn
        ]
        results = list(self.backend.run(jobs, params, self.plan.training_at(t)))
        for result in results:
            if result.private and self.private is not None:
                self.private.save(result.device_id, t, result.private)
        shields = (self.shields.get(result.device_id, ()) for result in results)
        return [
            replace(result, num_examples=defend_count(result.num_examples, shield))
            for result, shield in zip(results, shields, strict=True)
        ]

    def _sent(self, result: ClientResult, now: PrivateRound | None, t: int) -> Params:
        shield = _at(self.shields.get(result.device_id, ()), now)
        return defend_update(result.update, shield, self.plan.seed, t, result.device_id)

    def _own(self, device: Device, t: int) -> Params:
        """Return the private parameters of a device: none unless it has a secret head."""
        if CODE not in device.examples:
            return {}
        if self.private is None:
            raise FedprintError(
                f"device {device.device_id} has a secret head, but no ClientState to keep it; pass one as private"
            )
        where = device.examples["x"].device
        return {name: tensor.to(where) for name, tensor in self.private.load(device.device_id, t).items()}

    def _step(
        self,
        trained: Sequence[ClientResult],
        sent: Sequence[Params],
        defences: Sequence[UpdateDefence],
        path: tuple[int, ...],
        *,
        like: Params,
    ) -> dict[str, Tensor]:
        """Return what the server adds to the global model: the mean of what was sent, through the server's defences.

        Where a guarantee is claimed, a Poisson sample's sum is divided by the planned m_t, because its size is secret.
        """
        plan = self.plan
        expected = 1 if plan.aggregation == "round-robin" else plan.expected(path[0])
        secret = plan.sampling == "poisson" and has_guarantee(defences)
        weights = device_weights(trained, self.updates, plan)
        mean = algebra.weighted_mean(sent, weights, total=float(expected) if secret else None)
        mean = mean or {name: torch.zeros_like(tensor) for name, tensor in like.items()}
        for position, defence in reversed(list(enumerate(defences))):
            if isinstance(defence, DpFedAvg) and defence.bands > 1:
                rngs = [plan.server_rng("defence", position, s) for s in range(path[0], -1, -1)]
                mean = dict(defence.on_server_correlated(mean, expected, rngs))
            else:
                mean = dict(defence.on_server(mean, expected, plan.server_rng("defence", position, *path)))
        return mean


def _at(defences: Sequence[Any], now: PrivateRound | None) -> tuple[Any, ...]:
    """Return the defences with dp-fedavg as this round runs it."""
    return tuple(now.defence if now is not None and isinstance(d, DpFedAvg) else d for d in defences)


def _mean_loss(
    results: Sequence[ClientResult], norms: Sequence[float], first: float | None, plan: FederationPlan, t: int
) -> dict[str, float]:
    """Return the mean ``loss`` over examples, nothing for an empty round. Raises FedprintError where it explodes."""
    if not results:
        return {}
    badness = [_badness(result.loss, norm) for result, norm in zip(results, norms, strict=True)]
    worst = badness.index(max(badness))
    mean = sum(result.loss * result.num_examples for result in results) / sum(r.num_examples for r in results)
    if math.isinf(badness[worst]) or (first is not None and mean > DIVERGED * first):
        before = "" if first is None else f" (mean of the first round {first:.4g})"
        device, loss = results[worst].device_id, results[worst].loss
        raise FedprintError(
            f"training diverged in round {t}: device {device} has loss {loss:.4g}{before} "
            f"and update norm {norms[worst]:.4g}; lower federation.lr (now {plan.training.lr})"
        )
    return {"loss": mean}


def device_weights(
    results: Sequence[ClientResult], defences: Sequence[UpdateDefence], plan: FederationPlan
) -> list[float]:
    """Return the devices' weights in the mean: their numbers of examples, or all equal where a guarantee is claimed.

    The noise hides one clipped update in a sum, so no device may have a larger weight than another (client-dp, alg. 1).
    """
    if plan.aggregation != "fedavg" or has_guarantee(defences):
        return [1.0] * len(results)
    return [float(result.num_examples) for result in results]


def _badness(loss: float, norm: float) -> float:
    """Return the loss, infinite where it or the norm of the update is not finite."""
    return loss if math.isfinite(loss + norm) else math.inf
