"""The command ``fedprint``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Optional

import typer

from fedprint.cli import privacy_commands
from fedprint.cli.options import Assignments, DataDir, Fast, KeepUpdates, data_folder, keep_updates, use_data
from fedprint.types import FedprintError

Store = Annotated[
    Path,
    typer.Argument(
        help="An experiment that was run, with /<prior>-<seed> for one of several, or its folder "
        "updates/<prior>-<seed>."
    ),
]

app = typer.Typer(
    name="fedprint",
    help="How recognisable is a user from the model updates that federated learning calls anonymous?",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(
    help="List, describe, validate and fetch data sets.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data_app, name="data")


@app.command(epilog="Example: fedprint run mnist-writers --data-dir ~/data --set split.priors=[random]")
def run(
    config: Annotated[str, typer.Argument(help="Name of an experiment in configs/experiments.")],
    fast: Fast = False,
    assign: Assignments = None,
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate time, memory and disk, and stop.")] = False,
    jobs: Annotated[
        Optional[int],
        typer.Option("--jobs", min=1, help="Members of a suite, points of a sweep, or cells, that run at a time."),
    ] = None,
    keep: KeepUpdates = False,
) -> None:
    """Run an experiment end to end through DVC and publish its report to reports/<experiment>/."""
    from fedprint.kinds.config_files import kind_named
    from fedprint.kinds.workspace import find_root

    use_data(data_dir)
    keep_updates(keep)
    root, line = find_root(), (fast, assign or [])
    match kind_named(root, config):
        case "suite":
            _run_suite(root, config, line, dry_run, jobs)
        case "sweep":
            from fedprint.cli.defence_commands import run_sweep

            if run_sweep(root, config, line, dry_run, jobs):
                _print_summary(root, config)
        case "inversion":
            from fedprint.kinds.inversion.run import run_named as run_inversion

            if run_inversion(root, config, line, dry_run, jobs):
                _print_summary(root, config)
        case "clients":
            from fedprint.kinds.clients.run import run_named as run_clients

            if run_clients(root, config, line, dry_run, jobs):
                _print_summary(root, config)
        case "federation":
            _run_federation(root, config, line, dry_run)


def _run_federation(root: Path, name: str, line: tuple[bool, list[str]], dry_run: bool) -> None:
    from fedprint.kinds.federation.config import load_experiment
    from fedprint.kinds.named_files import files_sha256
    from fedprint.kinds.workspace import Request, run_experiment

    fast, assign = line
    settings = load_experiment(root, name, fast=fast, assignments=assign)
    if dry_run:
        from fedprint.kinds.estimates import print_estimate

        print_estimate(settings)
        return
    request = Request(
        experiment=name,
        priors=list(settings.split.priors),
        seeds=list(settings.seeds),
        dataset_sha256=settings.data.fingerprint(data_folder()),
        files_sha256=files_sha256(settings),
        arguments=[*(["--fast"] if fast else []), *(word for a in assign for word in ("--set", a))],
        shareable=settings.data.name == "albums",
    )
    run_experiment(root, request)
    _print_summary(root, name)


def _run_suite(root: Path, name: str, line: tuple[bool, list[str]], dry_run: bool, jobs: int | None) -> None:
    from fedprint.kinds.suite.suite import load_suite, raise_failures, run_suite

    suite = load_suite(root, name, fast=line[0], assignments=line[1])
    if dry_run:
        from fedprint.kinds.estimates import print_suite_estimate

        print_suite_estimate(suite)
        return
    at_a_time = jobs or min(2, os.cpu_count() or 1)
    outcomes = run_suite(root, suite, data_folder(), min(at_a_time, len(suite.members)))
    if any(outcome.report for outcome in outcomes):
        _print_summary(root, name)
    raise_failures(suite, outcomes)


@app.command(epilog="Example: fedprint tune albums --strategy mm-aug --trials 10 --set ceiling.times_chance=4")
def tune(
    study: Annotated[str, typer.Argument(help="Name of a study in configs/studies.")],
    fast: Fast = False,
    assign: Assignments = None,
    data_dir: DataDir = None,
    strategy: Annotated[
        Optional[list[str]], typer.Option("--strategy", help="Search this strategy only (repeatable; default: all).")
    ] = None,
    trials: Annotated[Optional[int], typer.Option("--trials", min=1, help="Trials of each strategy.")] = None,
    workers: Annotated[
        Optional[int], typer.Option("--workers", min=1, help="Processes at a time (default: one per core).")
    ] = None,
    timeout: Annotated[
        Optional[float], typer.Option("--timeout", min=0.1, help="Minutes after which no further trial begins.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate the time, and stop.")] = False,
    keep: KeepUpdates = False,
) -> None:
    """Find the highest utility under a ceiling on the attack; a repeated command goes on where it was stopped."""
    from fedprint.cli.defence_commands import run_study
    from fedprint.kinds.workspace import find_root

    use_data(data_dir)
    keep_updates(keep)
    budget = [f"trials={trials}"] if trials else []
    run_study(find_root(), study, (fast, [*(assign or []), *budget]), workers, timeout, dry_run, strategy or ())


@app.command(epilog="Example: fedprint summary quickstart")
def summary(experiment: Annotated[str, typer.Argument(help="Name of an experiment that was run.")]) -> None:
    """Print an experiment's main numbers, where its report is, and how to open MLflow."""
    from fedprint.kinds.workspace import find_root

    _print_summary(find_root(), experiment)


def _print_summary(root: Path, experiment: str) -> None:
    from rich.console import Console

    from fedprint.reports.terminal import summary_table
    from fedprint.tracking.runs import ui_hint

    folder = root / "reports" / experiment
    console = Console(soft_wrap=True)
    console.print(summary_table(folder))
    console.print(f"Report: {folder / 'index.html'}", highlight=False)
    console.print(f"MLflow: {ui_hint(root, 'fedprint')}", highlight=False, markup=False)


@app.command(epilog="Example: fedprint attack quickstart/random-0 --set attacks.1.k=5")
def attack(
    store: Store,
    assign: Assignments = None,
    out: Annotated[Optional[Path], typer.Option("--out", help="Where results go (default: work/attacks/...).")] = None,
) -> None:
    """Attack an existing update store again, without retraining, and print every attacker's AP."""
    from fedprint.kinds.federation.reattack import reattack

    table, folder = reattack(store, assign or [], out)
    from rich.console import Console

    Console().print(table)
    print(f"Results: {folder}")


@app.command(epilog="Example: fedprint reconstruct writers-fedsgd --set updates=16 --set attack.evaluations=800")
def reconstruct(
    store: Store,
    assign: Assignments = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", help="Where results go (default: work/reconstructions/...).")
    ] = None,
) -> None:
    """Reconstruct images from recorded updates, trace them and tell which images the updates hold."""
    from rich.console import Console

    from fedprint.kinds.inversion.recorded_command import run_recorded

    table, folder = run_recorded(store, assign or [], out)
    Console().print(table)
    print(f"Results: {folder}")


@app.command(epilog="Example: fedprint compare quickstart mnist-writers --out comparison")
def compare(
    first: Annotated[str, typer.Argument(help="Experiment, or folder of a report.")],
    second: Annotated[str, typer.Argument(help="Experiment, or folder of a report.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the page and the table.")] = Path("comparison"),
) -> None:
    """Set two reports side by side."""
    from fedprint.kinds.workspace import find_root
    from fedprint.reports.compare import write_comparison

    folders = [Path(name) if Path(name).is_dir() else find_root() / "reports" / name for name in (first, second)]
    write_comparison(folders[0], folders[1], out)
    print(out / "index.html")


@app.command(epilog="Example: fedprint clean --dry-run")
def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much would be freed.")] = False,
) -> None:
    """Remove update stores, checkpoints and cached files that no report needs."""
    from fedprint.kinds.cleaning import clean as clean_up
    from fedprint.kinds.cleaning import reported
    from fedprint.kinds.workspace import find_root

    root = find_root()
    freed = clean_up(root, reported(root), dry_run=dry_run)
    print(f"{'would free' if dry_run else 'freed'} {freed / 2**20:.0f} MiB")


app.command(
    epilog="Examples: fedprint budget --clients 1000 --cohort 220 --rounds 54 --delta 1e-5 --epsilon 8 --plot b.png | "
    "fedprint budget client-dp-100 --set federation.rounds=30"
)(privacy_commands.budget)
app.command(
    epilog="Examples: fedprint audit --clients 1000 --cohort 220 --rounds 54 --sigma 1.252 --delta 1e-5 | "
    "fedprint audit client-dp-100 --canaries 200 --json"
)(privacy_commands.audit)


@app.command("config", epilog="Example: fedprint config mnist-writers --set federation.rounds=20")
def show_config(
    experiment: Annotated[str, typer.Argument(help="Name of an experiment in configs/experiments.")],
    fast: Fast = False,
    assign: Assignments = None,
) -> None:
    """Print the resolved configuration and its hash."""
    from fedprint.kinds.config_files import kind_named
    from fedprint.kinds.federation.config import dump_yaml, load_experiment
    from fedprint.kinds.workspace import find_root

    root = find_root()
    match kind_named(root, experiment):
        case "inversion":
            from fedprint.kinds.inversion.config import load_inversion

            whole = load_inversion(root, experiment, fast=fast, assignments=assign or [])
            print(f"{whole.text()}# config hash {whole.digest()}")
            return
        case "clients":
            from fedprint.kinds.clients.config import load_clients

            sweep = load_clients(root, experiment, fast=fast, assignments=assign or [])
            print(f"{sweep.text()}# config hash {sweep.digest()}")
            return
        case "suite":
            from fedprint.kinds.suite.suite import load_suite

            found = [
                member.config for member in load_suite(root, experiment, fast=fast, assignments=assign or []).members
            ]
        case "sweep":
            from fedprint.kinds.plane.plane import load_plane

            found = [place.config for place in load_plane(root, experiment, fast=fast, assignments=assign or []).places]
        case "federation":
            found = [load_experiment(root, experiment, fast=fast, assignments=assign or [])]
    for position, settings in enumerate(found):
        print("---\n" if position else "", dump_yaml(settings), sep="", end="")
        print(f"# config hash {settings.digest()}")


@data_app.command("list")
def data_list(data_dir: DataDir = None) -> None:
    """List the data sets that fedprint knows and those found in the data folder."""
    from rich.console import Console

    from fedprint.cli.data_commands import list_table

    use_data(data_dir)
    Console().print(list_table(data_folder()))


@data_app.command("describe", epilog="Example: fedprint data describe albums --out albums.png")
def data_describe(
    name: str,
    data_dir: DataDir = None,
    out: Annotated[Optional[Path], typer.Option("--out", help="File for the contact sheet (pictures only).")] = None,
    samples: Annotated[
        bool, typer.Option("--samples", help="Show samples of real people's data too; they stay on this machine.")
    ] = False,
) -> None:
    """Show users, examples per user, columns and licence of a data set, with a contact sheet or sample text."""
    from fedprint.cli.data_commands import describe

    use_data(data_dir)
    describe(name, data_folder(), out, samples)


@data_app.command("validate", epilog="Example: fedprint data validate ~/data/mnist_writers")
def data_validate(path: Path) -> None:
    """Check a folder in the self-describing format; say what is wrong, or what is in it."""
    from fedprint.data.describe import validate

    table = validate(path)
    print(f"{path}: valid, {len(table)} examples, columns {', '.join(table.columns)}")


@data_app.command("fetch", epilog="Example: fedprint data fetch mnist_writers --data-dir ~/data")
def data_fetch(name: str, data_dir: DataDir = None) -> None:
    """Build a data set from its public source (needs a network)."""
    from fedprint.cli.data_commands import fetch

    use_data(data_dir)
    fetch(name, data_folder())


def _one_line_errors(call: Callable[[], None]) -> Callable[[], None]:
    @wraps(call)
    def wrapped() -> None:
        try:
            call()
        except FedprintError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(getattr(error, "exit_code", 2))

    return wrapped


@_one_line_errors
def main() -> None:
    """Entry point: errors that the user can mend are one line and exit code 2."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    app()
