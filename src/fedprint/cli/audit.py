"""``fedprint audit``: whether a promised epsilon holds."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from fedprint.cli.options import Assignments, DataDir, Fast, Json, asked, use_data
from fedprint.errors import FedprintError

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
    data_dir: DataDir = None,
) -> None:
    """Bound epsilon from below: canary clients join by the toss of a coin, and released models betray who did.

    Runs the code that federations run. Exit code 1 when the bound exceeds the accounted epsilon.
    """
    from fedprint.audit.run import Setting
    from fedprint.kinds.audit import audit as auditing
    from fedprint.kinds.budget.design import sampling_named

    use_data(data_dir)
    said = auditing.Asked(
        clients=clients, cohort=cohort, rounds=rounds, sigma=sigma, delta=delta,
        sampling=None if sampling is None else sampling_named(sampling),
    )  # fmt: skip

    def setting(delta: float) -> Setting:
        return Setting(delta=delta, canaries=canaries, confidence=confidence, seed=seed)

    if experiment is None:
        if fast or assign:
            raise FedprintError("audit: --fast and --set change an experiment; name one, or leave them out")
        mechanism, delta = auditing.mechanism_of(said)
        found = auditing.audit_mechanism(mechanism, setting(delta))
    else:
        from fedprint.kinds.federation.config import load_experiment

        auditing.check_named(experiment, said)
        config = load_experiment(asked(experiment, fast, assign))
        found = auditing.audit_experiment(config, config.split.priors[0], setting(auditing.delta_of(delta, config)))
    if as_json:
        print(auditing.as_json(found))
    else:
        from rich.console import Console

        Console().print(auditing.table(found, f"audit of {experiment or 'the aggregation alone'}"))
    if not found.holds:
        raise typer.Exit(1)
