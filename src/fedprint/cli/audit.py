"""``fedprint audit``: how recognisable the senders of recorded updates are, of any federation."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Optional

import typer

from fedprint.cli.options import Json
from fedprint.errors import FedprintError
from fedprint.reports.console import show

EPILOG = (
    "Examples: fedprint audit my-updates | fedprint audit my-updates --json --fail-above ap_over_chance=5 | "
    "fedprint audit my-updates --attacks ridge,count --out report"
)
EXCEEDED = 3
"""The exit status where a number is above its limit."""


def audit(
    folder: Annotated[
        Path, typer.Argument(help="Folder with manifest.yaml, updates and index (docs/recorded-updates.md).")
    ],
    out: Annotated[
        Optional[Path], typer.Option("--out", help="Folder of the report (default: <folder>-audit beside it).")
    ] = None,
    as_json: Json = False,
    fail_above: Annotated[
        Optional[list[str]],
        typer.Option("--fail-above", help="NUMBER=LIMIT of audit.json: exit with 3 where it is above (repeatable)."),
    ] = None,
    attacks: Annotated[
        Optional[str], typer.Option("--attacks", help="Names, by commas (default: all that can be run).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of ties, draws and intervals.")] = 0,
    title: Annotated[
        Optional[str], typer.Option("--title", help="Title of the report (default: the manifest's).")
    ] = None,
    show_users: Annotated[bool, typer.Option("--show-users", help="Show the names of users in the report.")] = False,
    scratch: Annotated[
        Optional[Path], typer.Option("--scratch", help="Folder for copies of updates (default: beside the report).")
    ] = None,
) -> None:
    """Attack recorded updates, judge what was found, and write a verdict: OUT/index.html and OUT/audit.json.

    It needs no project folder. Exit codes: 0; 2 for input that can be mended; 3 where a number is above its limit.
    """
    report = _free(out or folder.resolve().with_name(f"{folder.resolve().name}-audit"), folder)
    with redirect_stdout(sys.stderr):  # progress must not mix with the output of --json
        from fedprint.records import run as records
        from fedprint.reports.pages.records import terminal_table, write_records

        limits = [_limit(text, records.LIMITED) for text in fail_above or ()]
        names = records.DEFAULT if attacks is None else tuple(filter(None, attacks.split(",")))
        kept = scratch or report.with_name(f".{report.name}-scratch")
        result = records.run(folder, scratch=kept, attacks=names, seed=seed, title=title)
        write_records(result, report, show_users=show_users)
    summary = result.summary()
    if as_json:
        print((report / "audit.json").read_text(encoding="utf-8"), end="")
    else:
        show(terminal_table(result))
        print(f"Report: {report / 'index.html'}")
    above = [(key, records.gate_value(summary, key), limit) for key, limit in limits]
    if exceeded := [f"{key} is {value:.4g}, above {limit:g}" for key, value, limit in above if value > limit]:
        print(f"fail-above: {'; '.join(exceeded)}", file=sys.stderr)
        raise typer.Exit(EXCEEDED)


def _limit(text: str, known: Sequence[str]) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if key not in known or not math.isfinite(limit):
        raise FedprintError(f"--fail-above {text}: give NUMBER=LIMIT, as ap_over_chance=5; numbers: {', '.join(known)}")
    return key, limit


def _free(out: Path, folder: Path) -> Path:
    """Return ``out``, which the report will replace; FedprintError where something else is there."""
    out = out.resolve()
    if out == folder.resolve() or out in folder.resolve().parents:
        raise FedprintError(f"--out {out} holds the recorded updates, and a report replaces its folder: choose another")
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / "audit.json").is_file())):
        raise FedprintError(f"--out {out} is there and is no audit's report: choose another, or remove it")
    return out
