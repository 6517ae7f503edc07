"""dp-fedavg over the rounds of a federation: the clipping norm of each round, its event, and its line in the ledger."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprint.accounting.accountants import Accountant, accountant_named
from fedprint.accounting.budget import Budget
from fedprint.accounting.design import rounds_within, sampled_gaussian
from fedprint.accounting.events import Event, Infinite, Sampling
from fedprint.defences.clipping import MedianClip, QuantileClip
from fedprint.defences.correlated import noise_weights
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.points import ROLES
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.ledger import Entry
from fedprint.types import FedprintError, Role

CLIP, SHARE = "clip", "clip_share"
"""Metrics of a round: the clipping norm, and the noisy share of clients below it."""

MEDIAN = "the median of the norms"
LOSS = "the logged training loss"
UTILITY = "the logged test utility, where test examples are the clients' own"
DIVERSITY = "the logged V_c and U_s"
SECOND_DEVICE = "a user's second device (a user with both has an epsilon of their own)"
SECOND_UNPRICED = "a user's second device (not priced under samples of fixed size)"
OTHER_RUNS = "other runs on the same clients (seeds, priors, strengths)"


@dataclass(frozen=True, kw_only=True)
class PrivateRound:
    """dp-fedavg as one round runs it: ``defence`` has a constant norm and noise.

    ``metrics`` are recorded with the round; ``entry`` is its line in the ledger.
    """

    defence: DpFedAvg
    entry: Entry
    metrics: Mapping[str, float]


def private_defence(defences: Collection[object]) -> DpFedAvg | None:
    """Return the dp-fedavg among the defences, None without one. Raises FedprintError for more than one."""
    private = [defence for defence in defences if isinstance(defence, DpFedAvg)]
    if len(private) > 1:
        raise FedprintError(f"defences: {len(private)} dp-fedavg in one run; use one, with all the noise")
    return private[0] if private else None


def planned_events(
    defence: DpFedAvg | None, plan: FederationPlan, devices: int, roles: Collection[Role]
) -> tuple[Event, ...]:
    """Return the event of every round of the plan; Infinite without noise, or where some devices are not clipped.

    A device meets those of its own group: of correlated noise every ``bands``-th (:func:`fedprint.accounting.design.
    measured`), and no other round holds its part (Choquette-Choo et al. 2023, arXiv:2306.08153, theorem 4).
    """
    return tuple(_event(defence, plan, devices, roles, t) for t in range(plan.rounds))


def _event(defence: DpFedAvg | None, plan: FederationPlan, devices: int, roles: Collection[Role], t: int) -> Event:
    if defence is None or defence.z == 0:
        return Infinite(reason="no noise")
    if not _all_clipped(roles):
        return Infinite(reason="devices of one role are not clipped")
    multiplier = defence.multiplier(t, plan.planned, plan.expected(t))
    return sampled_gaussian(plan.sampling, plan.rate(t, devices), multiplier)


def _all_clipped(roles: Collection[Role]) -> bool:
    return set(roles) == set(ROLES)


def not_covered(defence: DpFedAvg, plan: FederationPlan | None = None) -> tuple[str, ...]:
    """Return what the guarantee does not cover: of the mechanism alone, or of a whole run by ``plan``.

    A run also writes its history, which the server computes from raw updates. A user owns a device for each half of the
    data, while a client is one device. Runs of several seeds, priors or strengths train on the same clients, each with
    its own ledger (docs/adr/0006).
    """
    uncovered = {
        MEDIAN: isinstance(defence.clip, MedianClip),
        LOSS: plan is not None,
        UTILITY: plan is not None,
        DIVERSITY: plan is not None and plan.diagnostics,
        SECOND_DEVICE: plan is not None and plan.sampling == "poisson",
        SECOND_UNPRICED: plan is not None and plan.sampling != "poisson",
        OTHER_RUNS: plan is not None,
    }
    return tuple(what for what, applies in uncovered.items() if applies)


def noise_of_sums(defence: DpFedAvg | None, plan: FederationPlan, norms: Sequence[float]) -> tuple[float, ...]:
    """Return the standard deviation, per coordinate, of the noise on every round's sum; empty without noise.

    ``norms`` are the clipping norms of the rounds so far, from the ledger, where the defence has no constant one. In
    round robin every client's step has noise of its own.
    """
    if defence is None or not defence.z:
        return ()
    clips = [defence.clip] * plan.rounds if isinstance(defence.clip, float) else norms
    settled = [defence.at(t, plan.planned, norm) for t, norm in enumerate(clips)]
    draws = [plan.expected(t) if plan.aggregation == "round-robin" else 1.0 for t in range(len(clips))]
    if defence.bands > 1:
        draws = np.cumsum(np.square(noise_weights(defence.bands, len(clips)))).tolist()
    return tuple(now.z * norm * math.sqrt(n) for now, norm, n in zip(settled, clips, draws, strict=True))


def budget_accountant(budget: Budget, sampling: Sampling) -> Accountant:
    """Return the budget's accountant, or the default one for this kind of sampling."""
    return accountant_named(budget.accountant or ("prv" if sampling == "poisson" else "rdp-wor"))


def rounds_allowed(defence: DpFedAvg | None, plan: FederationPlan, devices: int, roles: Collection[Role]) -> int:
    """Return how many rounds of the plan the budget allows: all without a budget. Raises FedprintError for none.

    The epsilon of a round does not depend on the data, so it is known before the first round.
    """
    if defence is None or defence.budget is None or defence.budget.epsilon is None:
        return plan.rounds
    budget = defence.budget
    events = planned_events(defence, plan, devices, roles)
    for event in events[:1]:
        if isinstance(event, Infinite):
            raise FedprintError(f"defences.dp-fedavg.budget: epsilon is infinite ({event.reason}); leave budget out")
    accountant, target = budget_accountant(budget, plan.sampling), budget.epsilon or 0.0
    allowed = rounds_within(accountant, events, target, budget.delta, defence.bands)
    if allowed == 0:
        raise FedprintError(
            f"defences.dp-fedavg.budget: epsilon {budget.epsilon} does not allow one round of {plan.expected(0)} of "
            f"{devices} clients at z={defence.z}; raise z (see `fedprint budget`)"
        )
    return allowed


class Privacy:
    """dp-fedavg in a running federation; holds the current norm of a private quantile.

    ``history`` are the metrics of the finished rounds; with them a resumed run continues exactly. Where not all
    ``roles`` are clipped, a device's part of the sum is not bounded: the lines in the ledger have sigma 0, and epsilon
    is infinite.
    """

    def __init__(
        self,
        defence: DpFedAvg,
        plan: FederationPlan,
        devices: int,
        history: Sequence[Mapping[str, Any]],
        roles: Collection[Role] = ROLES,
    ) -> None:
        self._defence, self._plan, self._devices, self._hides = defence, plan, devices, _all_clipped(roles)
        self._norm: float | None = history[-1][CLIP] if history and CLIP in history[-1] else None
        rule = defence.clip
        if isinstance(rule, QuantileClip):
            self._norm = rule.start if self._norm is None else rule.following(self._norm, history[-1][SHARE])

    def round(self, t: int, norms: Sequence[float]) -> PrivateRound:
        """Return dp-fedavg as round ``t`` runs it; ``norms`` are those of its updates, before clipping.

        The median depends on all norms of the round, a quantile on the rounds before.
        """
        rule = self._defence.clip
        if isinstance(rule, float):
            return self._settled(t, rule, {})
        if isinstance(rule, MedianClip):
            # an empty round has no median: its sum is 0, and its norm is that of the round before
            self._norm = rule.norm(norms) if norms else self._norm or 0.0
            return self._settled(t, self._norm, {CLIP: self._norm})
        norm = self._norm or rule.start
        share = rule.share(norms, norm, self._plan.expected(t), self._plan.server_rng("clip-share", t))
        self._norm = rule.following(norm, share)
        return self._settled(t, norm, {CLIP: norm, SHARE: share})

    def _settled(self, t: int, norm: float, metrics: Mapping[str, float]) -> PrivateRound:
        plan, rule = self._plan, self._defence.clip
        expected = plan.expected(t)
        sigma = self._defence.multiplier(t, plan.planned, expected) if self._hides else 0.0
        event = sampled_gaussian(plan.sampling, plan.rate(t, self._devices), sigma)
        entry = Entry(
            round=t,
            q=event.q,
            sigma=event.sigma,
            sampling=event.sampling,
            adjacency=event.adjacency,
            rule="constant" if isinstance(rule, float) else rule.name,
            clip=norm,
            bands=self._defence.bands,
        )
        return PrivateRound(defence=self._defence.at(t, plan.planned, norm), entry=entry, metrics=metrics)
