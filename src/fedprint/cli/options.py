"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

DataDir = Annotated[
    Optional[Path], typer.Option("--data-dir", envvar="FEDPRINT_DATA", help="Folder that holds the data sets.")
]
Assignments = Annotated[
    Optional[list[str]], typer.Option("--set", help="Override a setting: --set federation.rounds=20 (repeatable).")
]
Fast = Annotated[bool, typer.Option("--fast", help="Use the experiment's `fast` section: minutes become seconds.")]

KeepUpdates = Annotated[
    bool,
    typer.Option(
        "--keep-updates",
        help="Keep the updates of a sweep's or study's points (gigabytes): another attack needs no new federation.",
    ),
]


def keep_updates(keep: bool) -> None:
    """Make ``--keep-updates`` count in the processes that compute points."""
    from fedprint.kinds.plane.points import KEEP_UPDATES

    if keep:
        os.environ[KEEP_UPDATES] = "1"


def use_data(folder: Path | None) -> None:
    """Make ``--data-dir`` count everywhere, in the stages' processes too."""
    if folder is not None:
        os.environ["FEDPRINT_DATA"] = str(folder.resolve())


def data_folder() -> Path | None:
    """Return the folder of the data sets, None where none was named."""
    value = os.environ.get("FEDPRINT_DATA")
    return Path(value) if value else None
