"""Privacy accounting of a run: its ledger while it trains, and the epsilon that it spent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from fedprint.accounting.accountants import accountants_for
from fedprint.accounting.design import Epsilon, measured
from fedprint.accounting.events import Event
from fedprint.accounting.users import of_user
from fedprint.data.formats.files import write_json
from fedprint.defences.on_update import DpFedAvg
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.ledger import LEDGER, Ledger, read_ledger
from fedprint.federation.privacy import (
    SECOND_DEVICE,
    SECOND_UNPRICED,
    budget_accountant,
    not_covered,
    planned_events,
    private_defence,
)
from fedprint.lab.graph import Task
from fedprint.types import FedprintError


def open_ledger(task: Task, plan: FederationPlan, folder: Path, identity: str, released: int) -> Ledger | None:
    """Return the ledger beside the growing store, None where no noise claims a guarantee."""
    if _noisy(task) is None:
        return None
    return Ledger(folder / LEDGER, _run(task, identity), released=released, allowed=plan.rounds)


def write_privacy(task: Task, plan: FederationPlan, devices: int, folder: Path, identity: str) -> None:
    """Write public/ledger.jsonl and utility/privacy.json: every epsilon, of a device or a user.

    ``epsilons`` is empty without a budget's delta; null in it is infinite. Those of a device come first, the one that
    the budget counts with in front, and last that of a user with both devices: null where its ``not_covered`` says
    that nothing prices it. ``cost`` is the planned number of updates.
    """
    defence = _noisy(task)
    if defence is None:
        return
    spent = read_ledger(folder / LEDGER, _run(task, identity), lines=plan.rounds)
    events = planned_events(defence, plan, devices, task.config.threat.defended_roles())
    if [entry.event for entry in spent] != list(events) and task.config.threat.defended == "everyone":
        raise FedprintError(
            f"{folder / LEDGER}: not what this configuration spends; delete the checkpoint and run again"
        )
    public = task.at("public")
    public.mkdir(parents=True, exist_ok=True)
    (public / LEDGER).write_bytes((folder / LEDGER).read_bytes())
    epsilons: list[Epsilon] = []
    if defence.budget is not None:
        first = budget_accountant(defence.budget, plan.sampling)
        others = [a for a in accountants_for(plan.sampling)[0] if a.name != first.name]
        silent = not_covered(defence, plan)
        epsilons = [measured(a, events, defence.budget.delta, silent, defence.bands) for a in (first, *others)]
        epsilons += [of_a_user(epsilons[0], events, defence.bands)]
    values = {
        "mechanism": defence.name,
        "rounds": plan.rounds,
        "cost": sum(plan.expected(t) for t in range(plan.rounds)),
        "stopped_by_budget": plan.rounds < plan.planned,
        "epsilons": list(_finite(epsilons)),
    }
    write_json(task.at("utility") / "privacy.json", values)


def of_a_user(device: Epsilon, events: Sequence[Event], bands: int = 1) -> Epsilon:
    """Return the epsilon of a user with both devices beside that of one ``device`` after these rounds."""
    single = (SECOND_DEVICE, SECOND_UNPRICED)
    return of_user(device, events, [what for what in device.not_covered if what not in single], bands)


def _run(task: Task, identity: str) -> str:
    """Return what the ledger belongs to: configuration and data (``identity``), prior and seed."""
    return f"{identity}-{task.item}"


def _noisy(task: Task) -> DpFedAvg | None:
    defence = private_defence(task.config.defences)
    return defence if defence is not None and defence.z else None


def _finite(epsilons: Iterable[Epsilon]) -> Iterable[dict[str, object]]:
    for epsilon in epsilons:
        yield {**asdict(epsilon), "value": epsilon.value if math.isfinite(epsilon.value) else None}
