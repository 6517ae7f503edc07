"""``fedprint summary``: the main numbers of an experiment, its report, and its runs in MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedprint.errors import FedprintError
from fedprint.reports.console import whole_console

EPILOG = "Example: fedprint summary quickstart"


def summary(
    experiment: Annotated[
        str, typer.Argument(help="An experiment that was run or published: its name, file or folder.")
    ],
) -> None:
    """Print an experiment's main numbers, where its report is, and how to open MLflow."""
    from fedprint.lab.project import find_root
    from fedprint.reports.pages.terminal import published_table

    folder = results_of(experiment)
    if (folder / "summary.json").is_file():
        show_summary(find_root(), folder)
        return
    table = published_table(folder)
    console = whole_console(table)
    console.print(table)
    console.print(f"Report: not here; fedprint pull {folder.name}, or fedprint run {folder.name}", highlight=False)


def show_summary(root: Path, name: str | Path) -> None:
    """Print the table of a report (a name below reports/, or its folder), its page, and how to open MLflow."""
    from fedprint.lab.tracking.database import ui_hint
    from fedprint.reports.pages.terminal import summary_table

    folder = root / "reports" / name
    table = summary_table(folder)
    console = whole_console(table)
    console.print(table)
    page = folder / "index.html"
    console.print(f"Report: {page if page.is_file() else folder}", highlight=False)
    path = folder / "tracked.json"
    tracked = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"experiment": "fedprint"}
    console.print(f"MLflow: {ui_hint(root, **tracked)}", highlight=False, markup=False)


def results_of(name: str) -> Path:
    """Return the folder of an experiment's numbers: a folder as given, its report, or its published files.

    The report may be named in any way (:func:`fedprint.kinds.requests.report_name`). A fresh clone has measurements of
    published experiments and no report. Raises FedprintError where there are none.
    """
    from fedprint.kinds.requests import report_name
    from fedprint.lab.project import find_root

    if Path(name).is_dir():
        return Path(name).resolve()
    root = find_root()
    name = report_name(root, name)
    report, published = root / "reports" / name, root / "experiments" / name
    if (report / "summary.json").is_file():
        return report
    if (published / "measurements.jsonl").is_file():
        return published
    known = sorted(path.parent.name for path in (root / "reports").glob("*/summary.json"))
    raise FedprintError(
        f"no results of '{name}' (there are: {', '.join(known) or 'none'}): fedprint run {name}, or give a folder"
    )
