"""``fedprint data``: list, describe, check, fetch and version data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from fedprint.cli.options import DataDir, data_folder, out_file, use_data
from fedprint.reports.console import show

app = typer.Typer(
    help="List, describe, validate, fetch and version data sets.", no_args_is_help=True, rich_markup_mode=None
)

Cached = Annotated[
    bool, typer.Option("--cache", help="Also copy the data to data/<name> and into DVC's cache, for dvc push.")
]


@app.command("list", epilog="Example: fedprint data list --data-dir ~/data")
def data_list(data_dir: DataDir = None) -> None:
    """List the data sets that fedprint knows and those found in the data folder."""
    from fedprint.kinds.requests import experiments_by_data
    from fedprint.reports.data_sets import list_table

    use_data(data_dir)
    show(list_table(data_folder(), experiments_by_data()))


@app.command("describe", epilog="Example: fedprint data describe albums --out albums.png")
def data_describe(
    name: str,
    data_dir: DataDir = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", callback=out_file, help="File for the contact sheet (pictures only).")
    ] = None,
    samples: Annotated[
        bool, typer.Option("--samples", help="Show samples of real people's data too; they stay on this machine.")
    ] = False,
) -> None:
    """Show users, examples per user, columns and licence of a data set, with a contact sheet or sample text."""
    from fedprint.reports.data_sets import describe

    use_data(data_dir)
    describe(name, data_folder(), out, samples)


@app.command("validate", epilog="Example: fedprint data validate ~/data/mnist_writers")
def data_validate(path: Path) -> None:
    """Check a folder in the self-describing format; print its errors, or its content."""
    from fedprint.data.formats.describe import validate

    table = validate(path)
    print(f"{path}: valid, {len(table)} examples, columns {', '.join(table.columns)}")


@app.command("fetch", epilog="Example: fedprint data fetch mnist_writers --data-dir ~/data")
def data_fetch(name: str, data_dir: DataDir = None, cache: Cached = False) -> None:
    """Build a data set from its public source (needs a network), and write its version to datasets/<name>.yaml."""
    from fedprint.data.catalogue.manifest import add
    from fedprint.lab.project import find_root
    from fedprint.reports.data_sets import fetch

    use_data(data_dir)
    root = find_root()
    print(add(root, fetch(name, data_folder()), cache=cache).relative_to(root))


@app.command("add", epilog="Example: fedprint data add ~/data/blog --cache")
def data_add(
    path: Annotated[Path, typer.Argument(help="Folder of a data set; it may lie outside the project.")],
    name: Annotated[Optional[str], typer.Option("--name", help="Name of its version (default: the folder's).")] = None,
    cache: Cached = False,
) -> None:
    """Write the version of a data set (digest, counts; no content) to datasets/<name>.yaml, for git."""
    from fedprint.data.catalogue.manifest import add
    from fedprint.lab.project import find_root

    root = find_root()
    print(add(root, path, name, cache=cache).relative_to(root))
