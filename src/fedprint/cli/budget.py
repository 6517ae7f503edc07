"""``fedprint budget``: what client-level differential privacy costs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fedprint.cli.options import (
    Assignments,
    Clients,
    Cohort,
    DataDir,
    Fast,
    Json,
    Rounds,
    Sampling,
    out_file,
    request_of,
    use_data,
)
from fedprint.errors import FedprintError
from fedprint.reports.console import show

if TYPE_CHECKING:
    from rich.table import Table

    from fedprint.kinds.base import Request

EPILOG = (
    "Examples: fedprint budget --clients 1000 --cohort 220 --rounds 54 --delta 1e-5 --epsilon 8 --plot b.png | "
    "fedprint budget client-dp-100 --set federation.rounds=30"
)


def budget(
    experiment: Annotated[
        Optional[str], typer.Argument(help="Experiment with dp-fedavg, by name or file, whose run is priced.")
    ] = None,
    clients: Clients = None,
    cohort: Cohort = None,
    rounds: Rounds = None,
    delta: Annotated[Optional[float], typer.Option("--delta", help="Far below 1 / clients.")] = None,
    epsilon: Annotated[
        Optional[float], typer.Option("--epsilon", help="A budget, for which the noise is computed.")
    ] = None,
    sigma: Annotated[
        Optional[float],
        typer.Option("--sigma", help="Noise on the sum over the clipping norm, for which epsilon is computed."),
    ] = None,
    sampling: Sampling = None,
    as_json: Json = False,
    plot: Annotated[
        Optional[Path],
        typer.Option(
            "--plot", callback=out_file, help="Draw epsilon by rounds, and sigma for --epsilon, to .png or .svg."
        ),
    ] = None,
    fast: Fast = False,
    assign: Assignments = None,
    data_dir: DataDir = None,
) -> None:
    """Price client-level differential privacy: noise for a budget, epsilon of a noise, or with both the rounds.

    Numbers describe a mechanism with the same noise and cohort in all rounds; an experiment has all its schedules.
    """
    use_data(data_dir)
    if experiment is not None:
        options = {"--clients": clients, "--cohort": cohort, "--rounds": rounds, "--delta": delta, "--epsilon": epsilon,
                "--sigma": sigma, "--sampling": sampling, "--plot": plot}  # fmt: skip
        _price_experiment(request_of(experiment, fast, assign), options, as_json)
        return
    from fedprint.reports.pages import budget as design

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
    prices = design.answer(question)
    if plot is not None:
        design.write_plot(prices, plot)
    if as_json:
        print(design.as_json(prices))
        return
    _show(design.table(prices), prices.absent, design.cautions_of(prices))


def _price_experiment(request: Request, options: Mapping[str, object], as_json: bool) -> None:
    from fedprint.kinds.federation import budget as run_budget
    from fedprint.kinds.federation.config import load_experiment
    from fedprint.kinds.registry import kind_of

    run_budget.check_alone(request.path.stem, options)
    kind = kind_of(request.values)
    if kind.mark is not None:
        raise FedprintError(
            f"budget: '{request.path.stem}' is no single experiment (its kind is {kind.name}); name one with "
            "dp-fedavg, as client-dp-100"
        )
    price = run_budget.price(load_experiment(request))
    if as_json:
        print(run_budget.as_json(price))
    else:
        _show(run_budget.table(price), price.absent, run_budget.cautions_of(price))


def _show(table: Table, absent: Sequence[str], cautions: Sequence[str]) -> None:
    show(table)
    for text in cautions:
        print(f"warning: {text}")
    if absent:
        print(f"not installed: dp-accounting, for {', '.join(absent)} (see constraints.txt)", file=sys.stderr)
