"""``fedprint audit``: whether a promised epsilon holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fedprint.cli.options import Assignments, DataDir, Fast, Jobs, Json, Name, asked, use_data
from fedprint.errors import FedprintError

if TYPE_CHECKING:
    from fedprint.audit.run import Audit
    from fedprint.kinds.audit.mechanism import Asked
    from fedprint.kinds.base import Source

EPILOG = (
    "Examples: fedprint audit --clients 1000 --cohort 220 --rounds 54 --sigma 1.252 --delta 1e-5 | "
    "fedprint audit client-dp-100 --canaries 200 --json"
)


def audit(
    experiment: Annotated[
        Optional[str], typer.Argument(help="Experiment with dp-fedavg to train once more, canaries among its devices.")
    ] = None,
    clients: Annotated[Optional[int], typer.Option("--clients", min=1, help="K, for a mechanism by numbers.")] = None,
    cohort: Annotated[Optional[int], typer.Option("--cohort", min=1, help="m: how many of them in a round.")] = None,
    rounds: Annotated[Optional[int], typer.Option("--rounds", min=1, help="T: how many rounds.")] = None,
    sigma: Annotated[Optional[float], typer.Option("--sigma", help="Noise on the sum over the clipping norm.")] = None,
    delta: Annotated[
        Optional[float], typer.Option("--delta", help="Delta of both epsilons (default: the experiment's budget).")
    ] = None,
    sampling: Annotated[
        Optional[str], typer.Option("--sampling", help="poisson (add/remove; the default) or fixed (replace one).")
    ] = None,
    canaries: Annotated[int, typer.Option("--canaries", min=10, help="More show more and take longer.")] = 1000,
    confidence: Annotated[
        float, typer.Option("--confidence", help="That the bound is no higher than the truth.")
    ] = 0.95,
    seed: Annotated[int, typer.Option("--seed", help="Of coins, canaries and training.")] = 0,
    as_json: Json = False,
    fast: Fast = False,
    assign: Assignments = None,
    name: Name = None,
    jobs: Jobs = None,
    data_dir: DataDir = None,
) -> None:
    """Bound epsilon from below: canary clients join by the toss of a coin, and released models betray who did.

    Runs the code that federations run. Exit code 1 when the bound exceeds the accounted epsilon.
    """
    from rich.console import Console

    from fedprint.kinds.audit import found as audits
    from fedprint.kinds.audit.mechanism import Asked, check_named
    from fedprint.kinds.budget.design import sampling_named

    use_data(data_dir)
    said = Asked(
        clients=clients, cohort=cohort, rounds=rounds, sigma=sigma, delta=delta,
        sampling=None if sampling is None else sampling_named(sampling),
    )  # fmt: skip
    if experiment is None:
        if fast or assign or name:
            raise FedprintError("audit: --fast, --set and --name are about an experiment; name one, or leave them out")
        found = _of_mechanism(said, canaries, confidence, seed)
    else:
        check_named(experiment, said)
        values = {"canaries": canaries, "confidence": confidence, "delta": delta, "seeds": [seed]}
        found = _of_experiment(asked(experiment, fast, assign, name), values, jobs)
    if as_json:
        print(audits.as_json(found))
    else:
        Console().print(audits.table(found, f"audit of {experiment or 'the aggregation alone'}"))
    if not found.holds:
        raise typer.Exit(1)


def _of_mechanism(said: Asked, canaries: int, confidence: float, seed: int) -> Audit:
    from fedprint.audit.run import Setting
    from fedprint.kinds.audit.mechanism import audit_mechanism, mechanism_of

    mechanism, delta = mechanism_of(said)
    return audit_mechanism(mechanism, Setting(delta=delta, canaries=canaries, confidence=confidence, seed=seed))


def _of_experiment(source: Source, values: Mapping[str, Any], jobs: int | None) -> Audit:
    """Run the audit as any experiment is run; its report holds what was found."""
    from fedprint.data.files import read_json
    from fedprint.kinds import driver
    from fedprint.kinds.audit.config import audit_of
    from fedprint.kinds.audit.found import audit_from

    with redirect_stdout(sys.stderr):  # progress is no part of what --json prints
        folder = driver.run(audit_of(source, **values), jobs=jobs)
    (found,) = read_json(folder / "summary.json")["audits"]
    told = {name: value for name, value in found.items() if name not in ("holds", "verdict")}
    return audit_from(told)
