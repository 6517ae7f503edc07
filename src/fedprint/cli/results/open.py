"""``fedprint open``: an experiment's report in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from fedprint.errors import FedprintError

EPILOG = "Examples: fedprint open quickstart | fedprint open my_updates-audit | fedprint open quickstart --print"


def open_report(
    report: Annotated[str, typer.Argument(help="A report, by its experiment's name or file, or its folder.")],
    only_print: Annotated[bool, typer.Option("--print", help="Print where it is and open nothing.")] = False,
) -> None:
    """Open a report in the browser and print where it is."""
    import webbrowser

    from fedprint.cli.results.summary import results_of

    folder = results_of(report)
    page = folder / "index.html"
    if not page.is_file():
        raise FedprintError(
            f"{folder} has numbers and no page: fedprint pull {folder.name}, or fedprint run {folder.name}"
        )
    print(page)
    if not only_print and not webbrowser.open(page.as_uri()):
        raise FedprintError(f"no browser could be started here: open {page}")
