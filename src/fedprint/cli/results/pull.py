"""``fedprint pull``: brings the files that the committed locks name from the project's DVC remote."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

EPILOG = "Examples: fedprint pull | fedprint pull quickstart"


def pull(
    experiments: Annotated[
        Optional[list[str]], typer.Argument(help="Published experiments by name, file or folder (default: all).")
    ] = None,
) -> None:
    """Bring updates and reports of published experiments; print what the remote lacks, or that none is set."""
    from fedprint.kinds.requests import report_name
    from fedprint.lab.project import find_root
    from fedprint.lab.versions.repository import pull as pull_locked

    root = find_root()
    print(pull_locked(root, [report_name(root, each) for each in experiments or ()]))
