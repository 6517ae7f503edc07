"""Tables on a terminal, in a file or in a pipe: none loses a character."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def whole_console(table: Table) -> Console:
    """Return a console on which a table loses no character.

    Long cells fold. In a file or a pipe lines may be 160 characters wide, unless COLUMNS is set.
    """
    from rich.console import Console
    from rich.measure import Measurement

    for column in table.columns:
        column.overflow = "fold"
    console = Console(soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        wide = Console(width=10_000)
        console.width = min(160, max(console.width, Measurement.get(wide, wide.options, table).maximum))
    return console


def show(table: Table) -> None:
    """Print a table whole (:func:`whole_console`)."""
    whole_console(table).print(table)
