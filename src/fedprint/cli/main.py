"""The command ``fedprint``: one file here for each of its commands."""

from __future__ import annotations

import os
import signal
import sys
from importlib.metadata import version
from types import FrameType
from typing import Annotated

import typer

from fedprint.cli import (
    attack,
    audit,
    audit_dp,
    budget,
    clean,
    config,
    data,
    init,
    reconstruct,
    run,
    tune,
)
from fedprint.cli.results import compare, open, pull, summary
from fedprint.errors import FedprintError

app = typer.Typer(
    name="fedprint",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"fedprint {version('fedprint')}")
        raise typer.Exit


@app.callback()
def fedprint(
    shown: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """How recognisable is a user from the model updates that federated learning calls anonymous?"""


app.command(epilog=init.EPILOG)(init.init)
app.command(epilog=run.EPILOG)(run.run)
app.command(epilog=tune.EPILOG)(tune.tune)
app.command("config", epilog=config.EPILOG)(config.print_config)
app.command(epilog=summary.EPILOG)(summary.summary)
app.command("open", epilog=open.EPILOG)(open.open_report)
app.command(epilog=compare.EPILOG)(compare.compare)
app.command(epilog=attack.EPILOG)(attack.attack)
app.command(epilog=reconstruct.EPILOG)(reconstruct.reconstruct)
app.command(epilog=budget.EPILOG)(budget.budget)
app.command(epilog=audit.EPILOG)(audit.audit)
app.command(epilog=audit_dp.EPILOG)(audit_dp.audit_dp)
app.add_typer(data.app, name="data")
app.command(epilog=pull.EPILOG)(pull.pull)
app.command(epilog=clean.EPILOG)(clean.clean)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: a run that a scheduler stops is tracked as killed, and resumes where it stopped."""
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: errors that the user can mend are one line and exit code 2."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    signal.signal(signal.SIGTERM, _interrupt)
    if sys.argv[1:2] == [audit.audit.__name__] and audit_dp.was_meant(sys.argv[2:]):
        print("hint: this is now `fedprint audit-dp`; `fedprint audit` audits recorded updates", file=sys.stderr)
        sys.argv[1] = "audit-dp"
    try:
        app()
    except FedprintError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except MemoryError as error:
        what = f" ({error})" if str(error) else ""
        print(f"error: this needs more memory than there is{what}; take smaller numbers", file=sys.stderr)
        sys.exit(2)
