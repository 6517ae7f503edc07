"""What ``--dry-run`` prints of experiments and suites."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.federation.plan import Estimate, estimate
from fedprint.kinds.suite.suite import Suite


def print_estimate(settings: Experiment) -> None:
    """Print what an experiment would cost."""
    e = estimate(settings)
    table = Table("what", "estimate", title=f"{settings.name}: dry run, nothing written")
    rows = {
        "federations (priors x seeds)": f"{e.items}",
        "rounds": f"{e.rounds}" + (f" of {e.planned}: the budget ends them" if e.rounds < e.planned else ""),
        "devices": f"{e.devices}",
        "updates per federation": f"{e.updates} of {e.parameters} parameters",
        "time per update": f"{1000 * e.seconds_per_update:.1f} ms",
        "time, federations": f"{e.federate_s / 60:.1f} min",
        "time, attacks (rough)": f"{e.attack_s / 60:.1f} min",
        "disk, update stores": f"{e.disk / 2**20:.0f} MiB",
        "memory, at most": f"{e.memory / 2**20:.0f} MiB",
    }
    for what, value in rows.items():
        table.add_row(what, value)
    Console().print(table)


def print_suite_estimate(suite: Suite) -> None:
    """Print what every member of a suite would cost, and all of them."""
    table = Table(
        "member", "federations", "federate, min", "attack, min", "disk, MiB", "memory, MiB",
        title=f"{suite.name}: dry run, nothing written (the analyses' time comes on top)",
    )  # fmt: skip
    rows = {member.label: _costs(estimate(member.config)) for member in suite.members}
    # members run one after another: time and disk add up, memory does not
    columns = list(zip(*rows.values(), strict=True))
    rows["all"] = [*(sum(column) for column in columns[:-1]), max(columns[-1])]
    for label, (items, federate, attack, disk, memory) in rows.items():
        table.add_row(label, f"{items:.0f}", f"{federate:.1f}", f"{attack:.1f}", f"{disk:.0f}", f"{memory:.0f}")
    Console().print(table)


def _costs(e: Estimate) -> list[float]:
    return [e.items, e.federate_s / 60, e.attack_s / 60, e.disk / 2**20, e.memory / 2**20]
