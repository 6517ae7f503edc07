"""Audit a federation: canaries pass through its real clipping, sum and noise, and guesses about them bound epsilon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprint import params as algebra
from fedprint.accounting.accountants import Accountant
from fedprint.accounting.design import Epsilon, measured, sampled_gaussian
from fedprint.accounting.events import Infinite, SampledGaussian, Sampling
from fedprint.audit.bound import epsilon_lower_bound
from fedprint.audit.canaries import Canaries, WithCanaries, draw_canaries
from fedprint.audit.family import of_one_run, of_several_runs
from fedprint.audit.guesses import count_right, guess_coins, log_likelihood_ratio, with_estimated_noise
from fedprint.defences.correlated import without_correlation
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.points import ROLES
from fedprint.federation.cohorts import FederationPlan, groups_of, largest_cohort
from fedprint.federation.privacy import CLIP, not_covered, planned_events
from fedprint.federation.rounds import federate
from fedprint.types import Backend, Device, Doubles, FedprintError, Ints, Observation, Params, Truth

LOUD = 10.0
"""Canaries send this multiple of the clipping norm, so that clipping that lets too much through is noticed."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of an audit: the number of ``canaries``, ``delta``, and the ``confidence`` of the bound."""

    delta: float
    canaries: int = 1000
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit: with ``confidence``, epsilon at ``accounted.delta`` is at least ``bound``.

    ``q`` is the least and the greatest sampling rate of its rounds, ``claimed`` their q, sigma, sampling and number.
    ``tight`` is the bound within the family of the claimed rounds (audit/family.py), None where their curve is not
    known; ``accuracy`` is the share of canaries whose coin is guessed right where none is left out.
    """

    bound: float
    confidence: float
    rounds: int
    q: tuple[float, float]
    canaries: int
    included: int
    guesses: int
    correct: int
    accounted: Epsilon
    claimed: tuple[tuple[float, float, Sampling, int], ...]
    tight: float | None
    accuracy: float

    @property
    def holds(self) -> bool:
        """Whether the bound is at most the accounted epsilon; if not, the mechanism breaks its guarantee."""
        return self.bound <= self.accounted.value


def bound_of_runs(audits: Sequence[Audit]) -> float | None:
    """Return the bound from all runs of one mechanism together; None of a single run, and where no curve is known."""
    first = audits[0]
    if len(audits) < 2 or any(one.claimed != first.claimed for one in audits):
        return None
    rounds = {sampled_gaussian(sampling, q, sigma): times for q, sigma, sampling, times in first.claimed}
    return of_several_runs(rounds, first.accounted.delta, first.confidence, [one.accuracy for one in audits])


class ReleasedModels:
    """A writer for ``federate`` that keeps each released step along the canaries' directions, which the audit reads."""

    def __init__(self, initial: Params, canaries: Canaries, momentum: float) -> None:
        self._canaries, self._momentum = canaries, momentum
        self._latest, self._velocity = dict(initial), algebra.scale(initial, 0.0)
        self._metrics: list[dict[str, Any]] = []
        self.steps: list[Doubles] = []

    @property
    def next_round(self) -> int:
        """Return the number of rounds so far."""
        return len(self.steps)

    def latest_params(self) -> dict[str, Any]:
        """Return the last released model."""
        return self._latest

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of every round."""
        return self._metrics

    def append(
        self,
        round: int,
        observations: Sequence[Observation],
        truths: Sequence[Truth],
        after: Params,
        metrics: Mapping[str, float],
    ) -> None:
        """Keep the mean that the round released: its step without the server's momentum."""
        step = algebra.add(after, self._latest, -1.0)
        mean = algebra.add(step, self._velocity, -self._momentum)
        self.steps.append(self._canaries.components(algebra.flatten(mean)))
        self._latest, self._velocity = dict(after), step
        self._metrics.append({"round": round, **metrics})


def audit(
    *,
    devices: Sequence[Device],
    backend: Backend | None,
    initial: Params,
    plan: FederationPlan,
    defence: DpFedAvg,
    accountant: Accountant,
    setting: Setting,
) -> Audit:
    """Run the federation once with canaries among its ``devices`` (which ``backend`` trains) and bound epsilon.

    The cohort grows so that the sampling rate stays that of the plan for ``devices`` (or for the canaries where there
    are none), up to rounding. The audit reads only what is released (view central). Raises FedprintError for a
    mechanism without noise, which has no guarantee.
    """
    canaries = draw_canaries(setting.canaries, len(algebra.flatten(initial)), setting.seed)
    population = (*devices, *canaries.devices())
    plan = _with_room(plan, len(devices) or len(population), len(population))
    claimed = _claims(defence, plan, len(population))
    norm = defence.clip if isinstance(defence.clip, float) else getattr(defence.clip, "start", 1.0)
    writer: Any = ReleasedModels(initial, canaries, plan.momentum)  # has what federate calls of a StoreWriter
    federate(
        devices=population,
        plan=plan,
        backend=WithCanaries(canaries=canaries, inner=backend, norm=LOUD * norm, adjacency=claimed[0].adjacency),
        defences=[defence],
        writer=writer,
        utility=lambda t, params: {},
        report=lambda report: None,
    )
    steps, noisier = without_correlation(_over_norm(writer, plan, norm), defence.bands)
    events = _update_noise(claimed, defence, plan, noisier)
    scores = _scores(steps, events, groups_of(len(population), plan)[len(devices) :].numpy(), plan.groups)
    guesses = guess_coins(scores, setting.confidence)
    counts = {
        "canaries": canaries.count,
        "guesses": int(np.count_nonzero(guesses)),
        "correct": count_right(guesses, canaries.included),
    }
    rounds = Counter(claimed[:: defence.bands])
    return Audit(
        bound=epsilon_lower_bound(setting.delta, setting.confidence, **counts),
        confidence=setting.confidence,
        rounds=plan.rounds,
        q=(min(event.q for event in claimed), max(event.q for event in claimed)),
        included=int(canaries.included.sum()),
        accounted=measured(accountant, claimed, setting.delta, not_covered(defence), defence.bands),
        claimed=tuple((event.q, event.sigma, event.sampling, times) for event, times in rounds.items()),
        tight=of_one_run(rounds, setting.delta, setting.confidence, **counts),
        accuracy=float(np.mean((scores > 0) == canaries.included)),
        **counts,
    )


def _with_room(plan: FederationPlan, before: int, after: int) -> FederationPlan:
    """Return the plan for ``after`` devices with the sampling rate that it has for ``before`` devices."""
    cohort = max(1, round(plan.cohort * after / before))
    larger = replace(plan, cohort=cohort, slots=0, diagnostics=False)
    return replace(larger, slots=largest_cohort(after, larger))


def _claims(defence: DpFedAvg, plan: FederationPlan, devices: int) -> tuple[SampledGaussian, ...]:
    events = planned_events(defence, plan, devices, ROLES)
    for event in events:
        if isinstance(event, Infinite):
            raise FedprintError(
                f"audit: epsilon is infinite ({event.reason}), so there is nothing to check; raise dp-fedavg's z"
            )
    return tuple(event for event in events if isinstance(event, SampledGaussian))


def _update_noise(
    claimed: Sequence[SampledGaussian], defence: DpFedAvg, plan: FederationPlan, noisier: Doubles
) -> tuple[SampledGaussian, ...]:
    """Return the events with the noise of the sum alone: the audit does not read the bits of a private quantile."""
    return tuple(
        sampled_gaussian(event.sampling, event.q, defence.z * defence.z_schedule.factor(t, plan.planned) * float(more))
        for t, (event, more) in enumerate(zip(claimed, noisier, strict=True))
    )


def _scores(steps: Doubles, events: Sequence[SampledGaussian], groups: Ints, turns: int) -> Doubles:
    """Return the log-likelihood ratios (m,) of canaries, each from the rounds of its group (m,), every ``turns``-th."""
    scores = np.zeros(len(groups))
    for turn in set(groups.tolist()) & set(range(len(events))):
        own, of_turn = steps[turn::turns, groups == turn], events[turn::turns]
        scores[groups == turn] = log_likelihood_ratio(own, with_estimated_noise(of_turn, own))
    return scores


def _over_norm(writer: ReleasedModels, plan: FederationPlan, norm: float) -> Doubles:
    """Return every round's sum over its clipping norm along every direction: (T, m)."""
    factors = [plan.expected(t) / metrics.get(CLIP, norm) for t, metrics in enumerate(writer.metrics())]
    steps: Doubles = np.array(factors)[:, None] * np.stack(writer.steps)
    return steps
