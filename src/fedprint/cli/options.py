"""Options that mean the same in every command, and functions that read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from fedprint.errors import FedprintError
from fedprint.lab.outputs import file_for, folder_for

if TYPE_CHECKING:
    from fedprint.kinds.base import Request
    from fedprint.lab.workers.pool import LocalPool
    from fedprint.lab.workers.ray_pool import RayPool

DataDir = Annotated[
    Optional[Path], typer.Option("--data-dir", envvar="FEDPRINT_DATA", help="Folder that holds the data sets.")
]
Assignments = Annotated[
    Optional[list[str]], typer.Option("--set", help="Override a setting: --set federation.rounds=20 (repeatable).")
]
Fast = Annotated[bool, typer.Option("--fast", help="Use the file's `fast` section: minutes become seconds.")]
Name = Annotated[
    Optional[str],
    typer.Option("--name", help="Name of the report (default: the file's, and what --fast and --set change)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the number of jobs, time, memory and disk, and stop.")]
Jobs = Annotated[Optional[int], typer.Option("--jobs", min=1, help="Jobs that run at a time (default: one per core).")]
Where = Annotated[
    Literal["local", "ray"],
    typer.Option(
        "--pool", help="Where jobs run: processes of this machine, or a Ray cluster (pip install 'fedprint[ray]')."
    ),
]
Address = Annotated[
    Optional[str],
    typer.Option("--address", help="Of the Ray cluster; auto is the one of this machine (default: start one here)."),
]
KeepUpdates = Annotated[
    bool,
    typer.Option(
        "--keep-updates",
        help="Keep the recorded updates (gigabytes): another attack on them needs no new federation.",
    ),
]
Renew = Annotated[
    bool, typer.Option("--renew", help="Compute a published experiment again, though nothing of it changed.")
]
What = Annotated[
    str, typer.Argument(help="A name in configs/experiments or configs/studies, or a path to such a file.")
]
Recorded = Annotated[
    Path,
    typer.Argument(
        help="<report>, by name, file or folder, or <report>/<job>, as quickstart/random-0; its updates are kept."
    ),
]
Clients = Annotated[Optional[int], typer.Option("--clients", min=1, help="K: how many clients there are.")]
Cohort = Annotated[
    Optional[int], typer.Option("--cohort", min=1, help="m: how many take part in a round (on average).")
]
Rounds = Annotated[Optional[int], typer.Option("--rounds", min=1, help="T: how many rounds are planned.")]
Sampling = Annotated[
    Optional[str], typer.Option("--sampling", help="poisson (add/remove; the default) or fixed (replace one).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def out_folder(path: Path | None) -> Path | None:
    """Check a folder of results before the work (callback of ``--out``)."""
    return path and folder_for(path)


def out_file(path: Path | None) -> Path | None:
    """Check a file of results before the work (callback of ``--out`` and ``--plot``)."""
    return path and file_for(path)


def use_data(folder: Path | None) -> None:
    """Make ``--data-dir`` hold everywhere, in the stages' processes too."""
    if folder is not None:
        os.environ["FEDPRINT_DATA"] = str(folder.resolve())


def pool_of(where: str, address: str | None) -> LocalPool | RayPool:
    """Return the pool that ``--pool`` and ``--address`` name, still closed."""
    from fedprint.kinds import PRELOADED
    from fedprint.lab.workers.pool import LocalPool
    from fedprint.lab.workers.ray_pool import RayPool

    if address and where != "ray":
        raise FedprintError(f"--address {address} needs --pool ray")
    return RayPool(PRELOADED, address) if where == "ray" else LocalPool(PRELOADED)


def data_folder() -> Path | None:
    """Return the folder of the data sets, None without ``--data-dir``."""
    value = os.environ.get("FEDPRINT_DATA")
    return Path(value) if value else None


def request_of(what: str, fast: bool, assign: list[str] | None, name: str | None = None) -> Request:
    """Return the request for what a command names, in the project of the current folder."""
    from fedprint.kinds.requests import request_for
    from fedprint.lab.project import find_root

    return request_for(find_root(), what, fast=fast, assignments=assign or (), name=name)
