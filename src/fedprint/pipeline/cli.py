"""The command ``fedprint``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from fedprint.types import FedprintError

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

DataDir = Annotated[
    Optional[Path], typer.Option("--data-dir", envvar="FEDPRINT_DATA", help="Folder that holds the data sets.")
]
Assignments = Annotated[
    Optional[list[str]], typer.Option("--set", help="Override a setting: --set federation.rounds=20 (repeatable).")
]
Fast = Annotated[bool, typer.Option("--fast", help="Use the experiment's `fast` section: minutes become seconds.")]


def _use_data(folder: Path | None) -> None:
    if folder is not None:
        os.environ["FEDPRINT_DATA"] = str(folder.resolve())


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
) -> None:
    """Run an experiment end to end through DVC and publish its report to reports/<experiment>/."""
    from fedprint.pipeline.config_files import kind_named
    from fedprint.pipeline.workspace import find_root

    _use_data(data_dir)
    root, line = find_root(), (fast, assign or [])
    match kind_named(root, config):
        case "suite":
            _run_suite(root, config, line, dry_run, jobs)
        case "sweep":
            from fedprint.pipeline.defence_commands import run_sweep

            if run_sweep(root, config, line, dry_run, jobs):
                _print_summary(root, config)
        case "inversion":
            from fedprint.pipeline.inversion.run import run_named as run_inversion

            if run_inversion(root, config, line, dry_run, jobs):
                _print_summary(root, config)
        case "clients":
            from fedprint.pipeline.clients.run import run_named as run_clients

            if (folder := run_clients(root, config, line, dry_run, jobs)) is not None:
                print(f"Report: {folder / 'index.html'}")
        case "federation":
            _run_federation(root, config, line, dry_run)


def _run_federation(root: Path, name: str, line: tuple[bool, list[str]], dry_run: bool) -> None:
    from fedprint.pipeline.config import load_experiment
    from fedprint.pipeline.workspace import Request, run_experiment

    fast, assign = line
    settings = load_experiment(root, name, fast=fast, assignments=assign)
    if dry_run:
        _print_estimate(settings)
        return
    request = Request(
        experiment=name,
        priors=list(settings.split.priors),
        seeds=list(settings.seeds),
        dataset_sha256=settings.data.fingerprint(_data_folder()),
        arguments=[*(["--fast"] if fast else []), *(word for a in assign for word in ("--set", a))],
        shareable=settings.data.name == "albums",
    )
    run_experiment(root, request)
    _print_summary(root, name)


def _run_suite(root: Path, name: str, line: tuple[bool, list[str]], dry_run: bool, jobs: int | None) -> None:
    from fedprint.pipeline.suite import load_suite, raise_failures, run_suite

    suite = load_suite(root, name, fast=line[0], assignments=line[1])
    if dry_run:
        _print_suite_estimate(suite)
        return
    at_a_time = jobs or min(2, os.cpu_count() or 1)
    outcomes = run_suite(root, suite, _data_folder(), min(at_a_time, len(suite.members)))
    if any(outcome.report for outcome in outcomes):
        _print_summary(root, name)
    raise_failures(suite, outcomes)


def _print_suite_estimate(suite: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedprint.pipeline.plan import estimate

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


def _costs(e: Any) -> list[float]:
    return [e.items, e.federate_s / 60, e.attack_s / 60, e.disk / 2**20, e.memory / 2**20]


def _data_folder() -> Path | None:
    value = os.environ.get("FEDPRINT_DATA")
    return Path(value) if value else None


def _print_estimate(settings: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedprint.pipeline.plan import estimate

    e = estimate(settings)
    table = Table("what", "estimate", title=f"{settings.name}: dry run, nothing written")
    rows = {
        "federations (priors x seeds)": f"{e.items}",
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


@app.command(epilog="Example: fedprint tune albums --trials 10 --set ceiling.times_chance=4")
def tune(
    study: Annotated[str, typer.Argument(help="Name of a study in configs/studies.")],
    fast: Fast = False,
    assign: Assignments = None,
    data_dir: DataDir = None,
    trials: Annotated[Optional[int], typer.Option("--trials", min=1, help="Trials of each strategy.")] = None,
    workers: Annotated[
        Optional[int], typer.Option("--workers", min=1, help="Processes at a time (default: one per core).")
    ] = None,
    timeout: Annotated[
        Optional[float], typer.Option("--timeout", min=0.1, help="Minutes after which no further trial begins.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate the time, and stop.")] = False,
) -> None:
    """Find the highest utility under a ceiling on the attack; a repeated command goes on where it was stopped."""
    from fedprint.pipeline.defence_commands import run_study
    from fedprint.pipeline.workspace import find_root

    _use_data(data_dir)
    budget = [f"trials={trials}"] if trials else []
    run_study(find_root(), study, (fast, [*(assign or []), *budget]), workers, timeout, dry_run)


@app.command(epilog="Example: fedprint summary quickstart")
def summary(experiment: Annotated[str, typer.Argument(help="Name of an experiment that was run.")]) -> None:
    """Print an experiment's main numbers, where its report is, and how to open MLflow."""
    from fedprint.pipeline.workspace import find_root

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


@app.command(epilog="Example: fedprint attack artifacts/quickstart/updates/random-0 --set attacks.1.k=5")
def attack(
    store: Annotated[Path, typer.Argument(help="Folder updates/<prior>-<seed> of an experiment that was run.")],
    assign: Assignments = None,
    out: Annotated[Optional[Path], typer.Option("--out", help="Where results go (default: work/attacks/...).")] = None,
) -> None:
    """Attack an existing update store again, without retraining, and print every attacker's AP."""
    from fedprint.pipeline.reattack import reattack

    table, folder = reattack(store, assign or [], out)
    from rich.console import Console

    Console().print(table)
    print(f"Results: {folder}")


@app.command(epilog="Example: fedprint compare quickstart mnist-writers --out comparison")
def compare(
    first: Annotated[str, typer.Argument(help="Experiment, or folder of a report.")],
    second: Annotated[str, typer.Argument(help="Experiment, or folder of a report.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the page and the table.")] = Path("comparison"),
) -> None:
    """Set two reports side by side."""
    from fedprint.pipeline.workspace import find_root
    from fedprint.reports.compare import write_comparison

    folders = [Path(name) if Path(name).is_dir() else find_root() / "reports" / name for name in (first, second)]
    write_comparison(folders[0], folders[1], out)
    print(out / "index.html")


@app.command(epilog="Example: fedprint clean --dry-run")
def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much would be freed.")] = False,
) -> None:
    """Remove update stores, checkpoints and cached files that no report needs."""
    from fedprint.pipeline.cleaning import clean as clean_up
    from fedprint.pipeline.cleaning import reported
    from fedprint.pipeline.workspace import find_root

    root = find_root()
    freed = clean_up(root, reported(root), dry_run=dry_run)
    print(f"{'would free' if dry_run else 'freed'} {freed / 2**20:.0f} MiB")


@app.command(
    epilog="Example: fedprint budget --clients 1000 --cohort 220 --rounds 54 --delta 1e-5 --epsilon 8 --plot budget.png"
)
def budget(
    clients: Annotated[int, typer.Option("--clients", min=1, help="K: how many clients there are.")],
    cohort: Annotated[int, typer.Option("--cohort", min=1, help="m: how many take part in a round (on average).")],
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="T: how many rounds are planned.")],
    delta: Annotated[float, typer.Option("--delta", help="Far below 1 / clients.")],
    epsilon: Annotated[
        Optional[float], typer.Option("--epsilon", help="A budget: how much noise does it need?")
    ] = None,
    sigma: Annotated[
        Optional[float], typer.Option("--sigma", help="Noise on the sum over the clipping norm: what does it cost?")
    ] = None,
    sampling: Annotated[
        str, typer.Option("--sampling", help="poisson (add/remove) or fixed (replace one).")
    ] = "poisson",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[Optional[Path], typer.Option("--plot", help="Draw epsilon by rounds to a .png or .svg.")] = None,
) -> None:
    """Price client-level differential privacy: noise for a budget, epsilon of a noise, or with both the rounds."""
    from fedprint.pipeline import budget as design

    question = design.Question(
        clients=clients, cohort=cohort, rounds=rounds, delta=delta, epsilon=epsilon, sigma=sigma,
        sampling=design.sampling_named(sampling),
    )  # fmt: skip
    found = design.answer(question)
    if plot is not None:
        design.write_plot(found, plot)
    if as_json:
        print(design.as_json(found))
        return
    from rich.console import Console

    Console().print(design.table(found))
    if found.absent:
        print(f"not installed: dp-accounting, for {', '.join(found.absent)} (see constraints.txt)", file=sys.stderr)


@app.command(
    epilog="Examples: fedprint audit --clients 1000 --cohort 220 --rounds 54 --sigma 1.252 --delta 1e-5 | "
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
        str, typer.Option("--sampling", help="poisson (add/remove) or fixed (replace one).")
    ] = "poisson",
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
    from fedprint.pipeline import audit as auditing
    from fedprint.pipeline.budget import sampling_named

    _use_data(data_dir)
    asked = auditing.Asked(
        clients=clients, cohort=cohort, rounds=rounds, sigma=sigma, sampling=sampling_named(sampling), delta=delta
    )
    setting = Setting(delta=delta or 0.0, canaries=canaries, confidence=confidence, seed=seed)
    if experiment is None:
        found = auditing.audit_mechanism(auditing.mechanism_of(asked), setting)
    else:
        from fedprint.pipeline.config import load_experiment
        from fedprint.pipeline.workspace import find_root

        config = load_experiment(find_root(), experiment, fast=fast, assignments=assign or [])
        found = auditing.audit_experiment(config, config.split.priors[0], auditing.with_delta(setting, config))
    if as_json:
        print(auditing.as_json(found))
    else:
        from rich.console import Console

        Console().print(auditing.table(found, f"audit of {experiment or 'the aggregation alone'}"))
    if not found.holds:
        raise typer.Exit(1)


@app.command("config", epilog="Example: fedprint config mnist-writers --set federation.rounds=20")
def show_config(
    experiment: Annotated[str, typer.Argument(help="Name of an experiment in configs/experiments.")],
    fast: Fast = False,
    assign: Assignments = None,
) -> None:
    """Print the resolved configuration and its hash."""
    from fedprint.pipeline.config import dump_yaml, load_experiment
    from fedprint.pipeline.config_files import kind_named
    from fedprint.pipeline.workspace import find_root

    root = find_root()
    match kind_named(root, experiment):
        case "inversion":
            from fedprint.pipeline.inversion.config import load_inversion

            whole = load_inversion(root, experiment, fast=fast, assignments=assign or [])
            print(f"{whole.text()}# config hash {whole.digest()}")
            return
        case "clients":
            from fedprint.pipeline.clients.config import load_clients

            sweep = load_clients(root, experiment, fast=fast, assignments=assign or [])
            print(f"{sweep.text()}# config hash {sweep.digest()}")
            return
        case "suite":
            from fedprint.pipeline.suite import load_suite

            found = [
                member.config for member in load_suite(root, experiment, fast=fast, assignments=assign or []).members
            ]
        case "sweep":
            from fedprint.pipeline.plane import load_plane

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

    from fedprint.pipeline.data_commands import list_table

    _use_data(data_dir)
    Console().print(list_table(_data_folder()))


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
    from fedprint.pipeline.data_commands import describe

    _use_data(data_dir)
    describe(name, _data_folder(), out, samples)


@data_app.command("validate", epilog="Example: fedprint data validate ~/data/mnist_writers")
def data_validate(path: Path) -> None:
    """Check a folder in the self-describing format; say what is wrong, or what is in it."""
    from fedprint.data.describe import validate

    table = validate(path)
    print(f"{path}: valid, {len(table)} examples, columns {', '.join(table.columns)}")


@data_app.command("fetch", epilog="Example: fedprint data fetch mnist_writers --data-dir ~/data")
def data_fetch(name: str, data_dir: DataDir = None) -> None:
    """Build a data set from its public source (needs a network)."""
    from fedprint.pipeline.data_commands import fetch

    _use_data(data_dir)
    fetch(name, _data_folder())


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
