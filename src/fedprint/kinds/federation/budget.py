"""``fedprint budget EXPERIMENT``: the epsilon that a run would spend, by the functions that the run itself uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from fedprint.accounting.accountants import accountants_for
from fedprint.accounting.budget import Budget
from fedprint.accounting.design import Epsilon, measured, rounds_within
from fedprint.accounting.events import Infinite, SampledGaussian
from fedprint.data.formats.locate import data_root
from fedprint.data.splits import with_albums
from fedprint.federation.privacy import budget_accountant, not_covered, planned_events, private_defence
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.building.privacy import of_a_user
from fedprint.kinds.federation.config import Experiment
from fedprint.reports.pages.budget import cautions, dumped, side_by_side
from fedprint.rng import seed_for
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RunPrice:
    """The price of ``rounds`` of the ``planned`` ones: all that the budget allows, as a run would do them.

    ``cohorts`` (m_t, planned) and ``sigmas`` (noise on the sum over the clipping norm, less the private quantile's
    share) are those of the rounds done. ``spent`` has each accountant's epsilon, the budget's own first, and
    ``of_user`` is that of a user with both devices (infinite where nothing prices it); ``allowed`` is how many of the
    planned rounds each would allow, empty where the budget names no epsilon.
    """

    experiment: str
    clients: int
    planned: int
    rounds: int
    cohorts: tuple[int, ...]
    sigmas: tuple[float, ...]
    budget: Budget
    spent: Mapping[str, Epsilon]
    of_user: Epsilon
    allowed: Mapping[str, int]
    absent: tuple[str, ...]


def check_alone(experiment: str, options: Mapping[str, object]) -> None:
    """Raise FedprintError for numbers (option -> value, None not given) beside an experiment, which has its own."""
    if given := [option for option, value in options.items() if value is not None]:
        raise FedprintError(
            f"budget: '{experiment}' has numbers of its own; leave out {', '.join(given)}, or change the experiment "
            "with --set, as in --set federation.rounds=30"
        )


def price(config: Experiment) -> RunPrice:
    """Price an experiment, which does not depend on prior and seed; its data are read to count clients.

    Raises FedprintError where no noise or no delta makes an epsilon, and for a budget that pays for no round.
    """
    defence, budget = private_defence(config.defences), _budget(config)
    clients, roles = count_clients(config), config.threat.defended_roles()
    plan = build.make_plan(config, clients, build.federation_seed(config.seeds[0]), config.split.priors[0])
    events = planned_events(defence, replace(plan, rounds=plan.planned), clients, roles)
    for event in events[:1]:
        if isinstance(event, Infinite):
            raise FedprintError(f"budget: epsilon of '{config.name}' is infinite ({event.reason}); nothing to price")
    able, absent = accountants_for(plan.sampling)
    first = budget_accountant(budget, plan.sampling)
    order = (first, *(accountant for accountant in able if accountant.name != first.name))
    silent, done, target = not_covered(defence, plan) if defence else (), events[: plan.rounds], budget.epsilon
    bands = defence.bands if defence else 1
    spent = {a.name: measured(a, done, budget.delta, silent, bands) for a in order}
    return RunPrice(
        experiment=config.name,
        clients=clients,
        planned=plan.planned,
        rounds=plan.rounds,
        cohorts=tuple(plan.expected(t) for t in range(plan.rounds)),
        sigmas=tuple(event.sigma for event in done if isinstance(event, SampledGaussian)),
        budget=budget,
        spent=spent,
        of_user=of_a_user(spent[first.name], done, bands),
        allowed={a.name: rounds_within(a, events, target, budget.delta, bands) for a in order} if target else {},
        absent=absent,
    )


def count_clients(config: Experiment) -> int:
    """Return K, the devices that an experiment's data make (as the prepare stage does)."""
    users = config.data.load(data_root(None), seed_for(config.seeds[0], "data")).users
    return config.federation.device_count(len(with_albums(users, config.split.min_albums)))


def _budget(config: Experiment) -> Budget:
    defence = private_defence(config.defences)
    if defence is None or not defence.z:
        raise FedprintError(
            f"budget: '{config.name}' has no dp-fedavg with noise; --set 'defences=[{{name: dp-fedavg, z: 1, budget: "
            "{delta: 1e-3}}]'"
        )
    if defence.budget is None:
        index = next(i for i, each in enumerate(config.defences) if each is defence)
        raise FedprintError(f"budget: '{config.name}' names no delta; --set 'defences.{index}.budget={{delta: 1e-3}}'")
    return defence.budget


def as_json(price: RunPrice) -> str:
    """Return the price as JSON, under the keys of ``fedprint budget`` on numbers.

    ``sigma`` and ``cohort`` are numbers where they are the same in every round, else lists by round.
    """
    first = next(iter(price.spent.values()))
    return dumped(
        {name: epsilon.value for name, epsilon in price.spent.items()},
        {
            "experiment": price.experiment,
            "epsilon_user": price.of_user.value if math.isfinite(price.of_user.value) else None,
            "sigma": _constant(price.sigmas),
            "sigma_for_epsilon": {},
            "rounds_for_sigma": price.allowed,
            "clients": price.clients,
            "cohort": _constant(price.cohorts),
            "rounds": price.rounds,
            "planned_rounds": price.planned,
            "delta": price.budget.delta,
            "sampling": first.sampling,
            "adjacency": first.adjacency,
            "not_covered": list(first.not_covered),
            "not_installed": list(price.absent),
            "cautions": cautions_of(price),
        },
    )


def cautions_of(price: RunPrice) -> list[str]:
    """Return what a delta or an epsilon too large to protect anyone means; the epsilon is that of the budget."""
    return cautions(price.clients, price.budget.delta, next(iter(price.spent.values())).value)


def table(price: RunPrice) -> Table:
    """Return all accountants side by side, and the mechanism that the numbers are about."""
    first, target = next(iter(price.spent.values())), price.budget.epsilon
    columns = {f"epsilon of {price.rounds} rounds": {name: f"{e.value:.3f}" for name, e in price.spent.items()}}
    if target is not None:
        allowed = {name: str(rounds) for name, rounds in price.allowed.items()}
        columns[f"rounds for epsilon {target:g}, of {price.planned} planned"] = allowed
    cohort, sigma = _range(price.cohorts), _range(price.sigmas)
    return side_by_side(
        title=f"{price.experiment}: {cohort} of {price.clients} clients in each of {price.rounds} rounds, "
        f"sigma {sigma}, delta {price.budget.delta:g}, {first.sampling} sampling, {first.adjacency}",
        note=f"sigma is the noise on the sum over the clipping norm; epsilon is a device's, {_user_words(price)}; not "
        f"covered: {'; '.join(first.not_covered)}",
        columns=columns,
    )


def _user_words(price: RunPrice) -> str:
    value = price.of_user.value
    return (
        f"that of a user with both {value:.2f} (pld)" if math.isfinite(value) else "none is known of a user with both"
    )


def _constant(values: tuple[T, ...]) -> T | list[T]:
    return values[0] if len(set(values)) == 1 else list(values)


def _range(values: tuple[Any, ...]) -> str:
    ends = (f"{values[0]:.4g}", f"{values[-1]:.4g}")
    return ends[0] if len(set(values)) == 1 else " to ".join(ends)
