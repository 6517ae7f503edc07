"""``fedprint reconstruct``: images from updates that are recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from fedprint.cli.options import Address, Assignments, Recorded, Where, out_folder, pool_of
from fedprint.reports.console import show

EPILOG = "Example: fedprint reconstruct writers-fedsgd --set updates=16 --set attack.evaluations=800"


def reconstruct(
    store: Recorded,
    assign: Assignments = None,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", callback=out_folder, help="Where results go (default: work/reconstructions/...)."),
    ] = None,
    pool: Where = "local",
    address: Address = None,
) -> None:
    """Reconstruct images from recorded updates, trace them, and find which images the updates hold."""
    with pool_of(pool, address) as open_pool:  # first: it imports while this process does
        from fedprint.kinds.reconstruction.command import run_recorded

        table, folder = run_recorded(store, assign or [], out, open_pool)
    show(table)
    print(f"Results: {folder}")
