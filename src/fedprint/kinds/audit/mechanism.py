"""An audit of a mechanism by its numbers: the aggregation alone, computed at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count as numbers_from

import torch

from fedprint.accounting.accountants import accountant_named
from fedprint.accounting.events import Sampling
from fedprint.audit.run import Audit, Setting, audit
from fedprint.defences.on_update import DpFedAvg
from fedprint.federation.cohorts import FederationPlan
from fedprint.types import FedprintError, LocalTraining

Q_ERROR = 0.02
"""The largest relative error of the canaries' sampling rate: with more it would be another mechanism."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """``cohort`` of ``clients`` in each of ``rounds``, noise ``sigma`` times the clipping norm on their sum.

    With ``bands`` above 1 the noise is correlated between so many rounds, and clients come in as many groups, in turn.
    """

    clients: int
    cohort: int
    rounds: int
    sigma: float
    sampling: Sampling = "poisson"
    clip: float = 1.0
    bands: int = 1


def audit_mechanism(mechanism: Mechanism, setting: Setting) -> Audit:
    """Audit the aggregation alone: every client is a canary, at the mechanism's sampling rate, and none has data.

    Raises FedprintError for numbers that make no mechanism, and where so few canaries miss the rate.
    """
    m = mechanism
    _check(m, setting)
    plan = FederationPlan(
        rounds=m.rounds,
        cohort=_cohort_of_canaries(m, setting.canaries),
        training=LocalTraining(epochs=1, batch_size=1, lr=1.0),
        seed=setting.seed,
        sampling=m.sampling,
        groups=m.bands,
    )
    return audit(
        devices=(),
        backend=None,
        initial={"weight": torch.zeros(setting.canaries, dtype=torch.float64)},
        plan=plan,
        defence=DpFedAvg(clip=m.clip, z=m.sigma, bands=m.bands),
        accountant=accountant_named("prv" if m.sampling == "poisson" else "rdp-wor"),
        setting=setting,
    )


def _cohort_of_canaries(m: Mechanism, canaries: int) -> int:
    """Return how many of the ``canaries`` a round takes, so that q is the mechanism's."""
    q = m.cohort / m.clients

    def cohort(count: int) -> int:
        return max(1, round(q * count))

    def close(count: int) -> bool:
        return abs(cohort(count) / count - q) <= Q_ERROR * q

    if not close(canaries):
        raise FedprintError(
            f"--canaries {canaries}: a cohort of {cohort(canaries)} samples at q = {cohort(canaries) / canaries:.4g}, "
            f"--cohort {m.cohort} of --clients {m.clients} at q = {q:.4g}; raise --canaries to "
            f"{next(filter(close, numbers_from(canaries)))}"
        )
    return cohort(canaries)


def _check(m: Mechanism, setting: Setting) -> None:
    if not 1 <= m.cohort <= m.clients:
        raise FedprintError(f"--cohort {m.cohort} of --clients {m.clients}; choose 1 to {m.clients}")
    if m.bands > 1 and m.sampling != "poisson":
        raise FedprintError(f"--bands {m.bands}: correlated noise needs --sampling poisson")
    if m.bands * m.cohort > m.clients:
        raise FedprintError(
            f"--bands {m.bands}: a cohort of {m.cohort} comes from one of {m.bands} groups of --clients {m.clients}; "
            f"choose --cohort {m.clients // m.bands} at most"
        )
    if not (m.sigma > 0 and math.isfinite(m.sigma)):
        raise FedprintError(f"--sigma {m.sigma} is no noise; choose more than 0")
    check_setting(setting)


def check_setting(setting: Setting) -> None:
    """Raise FedprintError for a delta or a confidence that is no probability."""
    for name, value in (("delta", setting.delta), ("confidence", setting.confidence)):
        if not 0 < value < 1:
            raise FedprintError(f"--{name} {value} is no probability; choose between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the command line about a mechanism, None where one was not given."""

    clients: int | None
    cohort: int | None
    rounds: int | None
    sigma: float | None
    delta: float | None
    sampling: Sampling | None
    bands: int | None = None


def check_named(experiment: str, options: Options) -> None:
    """Raise FedprintError for numbers of a mechanism beside an experiment, which has its own."""
    numbers = ("clients", "cohort", "rounds", "sigma", "sampling", "bands")
    if given := [f"--{name}" for name in numbers if getattr(options, name) is not None]:
        raise FedprintError(
            f"audit: '{experiment}' has numbers of its own; leave out {', '.join(given)}, or change the experiment "
            "with --set, as in --set federation.rounds=8"
        )


def mechanism_of(options: Options) -> tuple[Mechanism, float]:
    """Return the mechanism (Poisson sampled by default) and delta. FedprintError names missing options."""
    needed = {name: getattr(options, name) for name in ("clients", "cohort", "rounds", "sigma", "delta")}
    missing = [f"--{name}" for name, value in needed.items() if value is None]
    if missing:
        raise FedprintError(f"audit: give {', '.join(missing)}, or the name of an experiment with dp-fedavg")
    delta = needed.pop("delta")
    return Mechanism(**needed, sampling=options.sampling or "poisson", bands=options.bands or 1), delta
