"""``fedprint attack``: other attacks on updates that are recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from fedprint.cli.options import Address, Assignments, Recorded, Where, out_folder, pool_of
from fedprint.reports.console import show

EPILOG = "Example: fedprint attack quickstart/random-0 --set attacks.1.k=5"


def attack(
    store: Recorded,
    assign: Assignments = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", callback=out_folder, help="Where results go (default: work/attacks/...).")
    ] = None,
    pool: Where = "local",
    address: Address = None,
) -> None:
    """Attack an existing update store again, without retraining, and print every attacker's AP."""
    with pool_of(pool, address) as open_pool:  # first: it imports while this process does
        from fedprint.kinds.federation.reattack import reattack

        table, folder = reattack(store, assign or [], out, open_pool)
    show(table)
    print(f"Results: {folder}")
