"""``fedprint clean``: deletes files that no report needs."""

from __future__ import annotations

from typing import Annotated

import typer

EPILOG = "Example: fedprint clean --dry-run"


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how much would be freed.")] = False,
) -> None:
    """Remove results and DVC objects that no report and no lock needs; finished reports, studies and MLflow stay."""
    from fedprint.lab.project import find_root
    from fedprint.lab.versions.cleaning import clean as clean_up

    freed = clean_up(find_root(), dry_run=dry_run)
    print(f"{'would free' if dry_run else 'freed'} {freed / 2**20:.0f} MiB")
