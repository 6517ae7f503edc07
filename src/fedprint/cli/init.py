"""``fedprint init``: a folder to work in, without a clone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = "Example: fedprint init my-study && cd my-study && fedprint run quickstart --fast"


def init(folder: Annotated[Path, typer.Argument(help="A new folder, or an empty one.")]) -> None:
    """Make a folder in which every command works: with the shipped experiments, without git and DVC."""
    from fedprint.lab.project import make_project

    make_project(folder)
    print(f"made {folder}; next: cd {folder} && fedprint run quickstart --fast")
