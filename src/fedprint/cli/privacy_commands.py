"""The commands on privacy budgets: what one buys, and whether it holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fedprint.cli.options import Assignments, DataDir, Fast, use_data
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from rich.table import Table


def budget(
    experiment: Annotated[
        Optional[str], typer.Argument(help="Experiment with dp-fedavg: what would a run of it spend?")
    ] = None,
    clients: Annotated[Optional[int], typer.Option("--clients", min=1, help="K: how many clients there are.")] = None,
    cohort: Annotated[
        Optional[int], typer.Option("--cohort", min=1, help="m: how many take part in a round (on average).")
    ] = None,
    rounds: Annotated[Optional[int], typer.Option("--rounds", min=1, help="T: how many rounds are planned.")] = None,
    delta: Annotated[Optional[float], typer.Option("--delta", help="Far below 1 / clients.")] = None,
    epsilon: Annotated[
        Optional[float], typer.Option("--epsilon", help="A budget: how much noise does it need?")
    ] = None,
    sigma: Annotated[
        Optional[float], typer.Option("--sigma", help="Noise on the sum over the clipping norm: what does it cost?")
    ] = None,
    sampling: Annotated[
        Optional[str], typer.Option("--sampling", help="poisson (add/remove; the default) or fixed (replace one).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[
        Optional[Path], typer.Option("--plot", help="Draw epsilon by rounds, and sigma for --epsilon, to .png or .svg.")
    ] = None,
    fast: Fast = False,
    assign: Assignments = None,
    data_dir: DataDir = None,
) -> None:
    """Price client-level differential privacy: noise for a budget, epsilon of a noise, or with both the rounds.

    Of one noise and cohort in all rounds, by numbers; or of an experiment, with all its schedules.
    """
    use_data(data_dir)
    if experiment is not None:
        said = {"--clients": clients, "--cohort": cohort, "--rounds": rounds, "--delta": delta, "--epsilon": epsilon,
                "--sigma": sigma, "--sampling": sampling, "--plot": plot}  # fmt: skip
        _price_experiment(experiment, said, (fast, assign or []), as_json)
        return
    from fedprint.kinds.budget import design

    if fast or assign:
        raise FedprintError("budget: --fast and --set change an experiment; name one, or leave them out")
    if clients is None or cohort is None or rounds is None or delta is None:
        raise FedprintError("budget: give --clients, --cohort, --rounds and --delta, or name an experiment")
    question = design.Question(
        clients=clients, cohort=cohort, rounds=rounds, delta=delta, epsilon=epsilon, sigma=sigma,
        sampling=design.sampling_named(sampling or "poisson"),
    )  # fmt: skip
    if plot is not None:
        design.check_plot(plot)  # before minutes of computing
    found = design.answer(question)
    if plot is not None:
        design.write_plot(found, plot)
    if as_json:
        print(design.as_json(found))
        return
    _show(design.table(found), found.absent)


def _price_experiment(name: str, said: Mapping[str, object], line: tuple[bool, Sequence[str]], as_json: bool) -> None:
    from fedprint.kinds.budget import run as run_budget
    from fedprint.kinds.federation.config import load_experiment
    from fedprint.kinds.workspace import find_root

    run_budget.check_alone(name, said)
    found = run_budget.price(load_experiment(find_root(), name, fast=line[0], assignments=line[1]))
    if as_json:
        print(run_budget.as_json(found))
    else:
        _show(run_budget.table(found), found.absent)


def _show(table: Table, absent: Sequence[str]) -> None:
    from rich.console import Console

    Console().print(table)
    if absent:
        print(f"not installed: dp-accounting, for {', '.join(absent)} (see constraints.txt)", file=sys.stderr)


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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
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
    asked = auditing.Asked(
        clients=clients, cohort=cohort, rounds=rounds, sigma=sigma, delta=delta,
        sampling=None if sampling is None else sampling_named(sampling),
    )  # fmt: skip

    def setting(delta: float) -> Setting:
        return Setting(delta=delta, canaries=canaries, confidence=confidence, seed=seed)

    if experiment is None:
        if fast or assign:
            raise FedprintError("audit: --fast and --set change an experiment; name one, or leave them out")
        mechanism, delta = auditing.mechanism_of(asked)
        found = auditing.audit_mechanism(mechanism, setting(delta))
    else:
        from fedprint.kinds.federation.config import load_experiment
        from fedprint.kinds.workspace import find_root

        auditing.check_named(experiment, asked)
        config = load_experiment(find_root(), experiment, fast=fast, assignments=assign or [])
        found = auditing.audit_experiment(config, config.split.priors[0], setting(auditing.delta_of(delta, config)))
    if as_json:
        print(auditing.as_json(found))
    else:
        from rich.console import Console

        Console().print(auditing.table(found, f"audit of {experiment or 'the aggregation alone'}"))
    if not found.holds:
        raise typer.Exit(1)
