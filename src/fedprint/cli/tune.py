"""``fedprint tune``: a run of a study, with the options that only studies have."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from fedprint.cli.options import (
    Address,
    Assignments,
    DataDir,
    DryRun,
    Fast,
    Jobs,
    KeepUpdates,
    Name,
    Renew,
    Where,
    use_data,
)

EPILOG = (
    "Examples: fedprint tune albums --strategy mm-aug --trials 10 | "
    "fedprint tune configs/studies/albums.yaml --set ceiling.times_chance=4"
)


def tune(
    study: Annotated[str, typer.Argument(help="Name of a study in configs/studies, or a path to such a file.")],
    fast: Fast = False,
    assign: Assignments = None,
    name: Name = None,
    strategy: Annotated[
        Optional[list[str]], typer.Option("--strategy", help="Search this strategy only (repeatable; default: all).")
    ] = None,
    trials: Annotated[Optional[int], typer.Option("--trials", min=1, help="Trials of each strategy.")] = None,
    timeout: Annotated[
        Optional[float], typer.Option("--timeout", min=0.1, help="Minutes after which no further trial begins.")
    ] = None,
    dry_run: DryRun = False,
    jobs: Jobs = None,
    keep: KeepUpdates = False,
    renew: Renew = False,
    pool: Where = "local",
    address: Address = None,
    data_dir: DataDir = None,
) -> None:
    """Find the highest utility under a ceiling on the attack; a repeated command resumes where it was stopped."""
    from fedprint.cli.run import run_request
    from fedprint.kinds.requests import request_for
    from fedprint.lab.project import find_root

    use_data(data_dir)
    # A search with other limits shares the study's trials, but has a report of its own.
    limits = {"trials": trials, "timeout_minutes": timeout and f"{timeout:g}"}
    given = request_for(
        find_root(),
        study,
        fast=fast,
        assignments=[*(assign or []), *(f"{key}={value}" for key, value in limits.items() if value)],
        strategies=strategy or (),
        name=name,
        folders=("studies",),
    )
    run_request(given, dry_run=dry_run, jobs=jobs, keep=keep, renew=renew, pool=pool, address=address)
