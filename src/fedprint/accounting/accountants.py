"""Accountants side by side: what (epsilon, delta) a composition of sampled Gaussians satisfies.

``prv`` (numerical, tight) and ``rdp`` are Opacus'; ``pld`` (numerical, tight) and ``rdp-wor`` are dp-accounting's, the
last one also for samples of fixed size; ``moments`` is the accountant that client-dp used. All are upper bounds.
Gaussian DP is left out because its central limit theorem underestimates epsilon (6.01 where the truth is 7.05).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from fedprint.accounting.events import Event, SampledGaussian, Sampling, counted
from fedprint.accounting.moments import Moments
from fedprint.types import FedprintError

_UNHELPFUL = 50.0
"""Above this epsilon ``prv`` and ``pld`` return the RDP bound: their grids would not fit in memory."""


class Accountant(Protocol):
    """Bounds the epsilon of compositions of sampled Gaussian mechanisms from above."""

    @property
    def name(self) -> str:
        """The key in :data:`ACCOUNTANTS`."""

    @property
    def samplings(self) -> tuple[Sampling, ...]:
        """The kinds of sampling for which the accountant has a theorem."""

    def epsilon(self, mechanisms: Mapping[SampledGaussian, int], delta: float) -> float:
        """Return epsilon at ``delta``; ``mechanisms`` maps each mechanism (noise above 0) to how often it runs."""


class OpacusPrv:
    """``prv``: privacy loss random variables composed by FFT (Gopi et al. 2021); at most ``error`` above the truth."""

    name = "prv"
    samplings: tuple[Sampling, ...] = ("poisson",)

    def __init__(self, error: float = 0.01) -> None:
        self.error = error

    def epsilon(self, mechanisms: Mapping[SampledGaussian, int], delta: float) -> float:
        """Return the upper end of the interval that Opacus computes."""
        bound = OpacusRdp().epsilon(mechanisms, delta)
        if bound > _UNHELPFUL:
            return bound
        from opacus.accountants import PRVAccountant

        accountant = PRVAccountant()
        accountant.history = [(event.noise_multiplier, event.q, times) for event, times in mechanisms.items()]
        with _without_advice():
            return min(bound, float(accountant.get_epsilon(delta, eps_error=self.error)))


class OpacusRdp:
    """``rdp``: Renyi differential privacy (Mironov et al. 2019)."""

    name = "rdp"
    samplings: tuple[Sampling, ...] = ("poisson",)

    def epsilon(self, mechanisms: Mapping[SampledGaussian, int], delta: float) -> float:
        """Return the best bound over Opacus' orders."""
        from opacus.accountants import RDPAccountant
        from opacus.accountants.analysis import rdp

        rounds = [times * _divergences(event.q, event.noise_multiplier) for event, times in mechanisms.items()]
        with _without_advice():
            return float(rdp.get_privacy_spent(orders=RDPAccountant.DEFAULT_ALPHAS, rdp=sum(rounds), delta=delta)[0])


class DpAccountingPld:
    """``pld``: privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022)."""

    name = "pld"
    samplings: tuple[Sampling, ...] = ("poisson",)

    def epsilon(self, mechanisms: Mapping[SampledGaussian, int], delta: float) -> float:
        """Return dp-accounting's pessimistic estimate."""
        bound = OpacusRdp().epsilon(mechanisms, delta)
        if bound > _UNHELPFUL:
            return bound
        return float(privacy_losses(mechanisms).get_epsilon_for_delta(delta))


class DpAccountingRdp:
    """``rdp-wor``: Renyi differential privacy, also of samples without replacement (Wang et al. 2019, theorem 27)."""

    name = "rdp-wor"
    samplings: tuple[Sampling, ...] = ("poisson", "fixed")

    def epsilon(self, mechanisms: Mapping[SampledGaussian, int], delta: float) -> float:
        """Return the best bound over dp-accounting's orders."""
        library = load_dp_accounting()
        relations = library.NeighboringRelation
        replaced = any(event.adjacency == "replace-one" for event in mechanisms)
        relation = relations.REPLACE_ONE if replaced else relations.ADD_OR_REMOVE_ONE
        accountant = library.rdp.RdpAccountant(neighboring_relation=relation)
        for event, times in mechanisms.items():
            accountant.compose(_translated(library, event), times)
        return float(accountant.get_epsilon(delta))


ACCOUNTANTS: Mapping[str, Accountant] = {
    accountant.name: accountant
    for accountant in (OpacusPrv(), OpacusRdp(), DpAccountingPld(), DpAccountingRdp(), Moments())
}
"""By name, in the order of tables."""

_BY_DP_ACCOUNTING = ("pld", "rdp-wor")


def accountants_for(sampling: Sampling) -> tuple[tuple[Accountant, ...], tuple[str, ...]]:
    """Return all accountants with a theorem for ``sampling``, and the names of those whose package is not installed."""
    able = [accountant for accountant in ACCOUNTANTS.values() if sampling in accountant.samplings]
    absent = [a.name for a in able if a.name in _BY_DP_ACCOUNTING and find_spec("dp_accounting") is None]
    return tuple(a for a in able if a.name not in absent), tuple(absent)


def accountant_named(name: str) -> Accountant:
    """Return an accountant; an unknown name is a FedprintError."""
    if name not in ACCOUNTANTS:
        raise FedprintError(f"unknown accountant '{name}'; choose one of {', '.join(ACCOUNTANTS)}")
    return ACCOUNTANTS[name]


def refused_sampling(accountant: Accountant, sampling: Sampling) -> str | None:
    """Return why an accountant cannot handle this kind of sampling, and which ones can; None where it can."""
    if sampling in accountant.samplings:
        return None
    able = ", ".join(name for name, other in ACCOUNTANTS.items() if sampling in other.samplings)
    return f"accountant {accountant.name} has no theorem for {sampling} sampling; use {able}"


def epsilon_of(accountant: Accountant, event: Event | None, delta: float) -> float:
    """Return the epsilon of any event at ``delta``: infinite without an event or without noise, 0 for no rounds.

    Raises FedprintError for a delta outside (0, 1), for an unknown event, and for a kind of sampling that the
    accountant has no theorem for.
    """
    if not 0 < delta < 1:
        raise FedprintError(f"delta={delta} is not between 0 and 1; choose a delta far below 1 / clients")
    mechanisms = counted(event)
    if mechanisms is None:
        return math.inf
    for mechanism in mechanisms:
        if refused := refused_sampling(accountant, mechanism.sampling):
            raise FedprintError(refused)
    with threadpool_limits(1):  # the last digits of a sum depend on the number of threads
        return max(0.0, accountant.epsilon(mechanisms, delta)) if mechanisms else 0.0


@lru_cache(maxsize=4096)
def _divergences(q: float, noise_multiplier: float) -> Any:
    """Return the Renyi divergences of one round at Opacus' orders; those of t rounds are t times as large."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis import rdp

    return rdp.compute_rdp(q=q, noise_multiplier=noise_multiplier, steps=1, orders=RDPAccountant.DEFAULT_ALPHAS)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Keep Opacus from advising on the choice of orders: a bound from the last order is still a bound."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load_dp_accounting() -> Any:
    """Return the package dp_accounting with its ``pld`` and ``rdp``; FedprintError where it is missing."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
        from absl import logging
    except ImportError as error:
        raise FedprintError(
            f"accountants pld and rdp-wor need the package dp-accounting ({error}); install what constraints.txt pins"
        ) from None
    logging.set_verbosity(logging.ERROR)  # it logs every order that it leaves out
    return dp_accounting


def privacy_losses(mechanisms: Mapping[SampledGaussian, int], step: float = 1e-4) -> Any:
    """Return dp-accounting's privacy loss distribution of these mechanisms, all with Poisson samples.

    The losses of a round are rounded up to multiples of ``step``.
    """
    together = load_dp_accounting().pld.privacy_loss_distribution.identity(step)
    for event, times in mechanisms.items():
        together = together.compose(_losses(event.q, event.noise_multiplier, step).self_compose(times))
    return together


@lru_cache(maxsize=64)
def _losses(q: float, noise_multiplier: float, step: float) -> Any:
    """Return the privacy loss distribution of one round."""
    distribution = load_dp_accounting().pld.privacy_loss_distribution
    return distribution.from_gaussian_mechanism(noise_multiplier, value_discretization_interval=step, sampling_prob=q)


def _translated(library: Any, event: SampledGaussian) -> Any:
    """Return our event as an event of dp-accounting, which takes sizes instead of rates; only their ratio matters."""
    noise = library.GaussianDpEvent(event.noise_multiplier)
    if event.sampling == "poisson":
        return library.PoissonSampledDpEvent(event.q, noise)
    clients = 10**9
    return library.SampledWithoutReplacementDpEvent(clients, round(event.q * clients), noise)
