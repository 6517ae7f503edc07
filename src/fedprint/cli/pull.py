"""``fedprint pull``: what the committed locks name, from the project's DVC remote."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

EPILOG = "Examples: fedprint pull | fedprint pull quickstart"


def pull(
    experiments: Annotated[
        Optional[list[str]], typer.Argument(help="Published experiments (default: all of them).")
    ] = None,
) -> None:
    """Bring updates and reports of published experiments; one line says what the remote lacks, or that none is set."""
    from fedprint.lab.project import find_root
    from fedprint.lab.versions import pull as pull_locked

    print(pull_locked(find_root(), experiments or ()))
