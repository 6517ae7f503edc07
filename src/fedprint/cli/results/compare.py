"""``fedprint compare``: two reports side by side, or whether two runs measured the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fedprint.cli.options import out_folder
from fedprint.errors import FedprintError

if TYPE_CHECKING:
    from fedprint.evaluation.agreement import Agreement

EPILOG = (
    "Examples: fedprint compare quickstart mnist-writers --out comparison | "
    "fedprint compare reports/quickstart ../before/reports/quickstart --exact"
)
Measured = Annotated[
    str, typer.Argument(help="An experiment's name, file or folder, or with --exact its measurements.jsonl.")
]


def compare(
    first: Measured,
    second: Measured,
    out: Annotated[
        Optional[Path],
        typer.Option(
            "--out", callback=out_folder, help="Folder for the page and the table (default: work/comparisons/...)."
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Compare row by row instead; exit code 1 where one is beyond its interval."),
    ] = False,
    ignore: Annotated[
        Optional[list[str]],
        typer.Option("--ignore", help="With --exact: a column that may differ (default: experiment, config_hash)."),
    ] = None,
) -> None:
    """Set two reports side by side. Of published experiments the measurements are enough, as in a fresh clone.

    With --exact, compare two runs of one experiment: print how many rows agree to the byte, and which do not.
    """
    if exact:
        _compare_rows(first, second, ignore)
        return
    if ignore:
        raise FedprintError("--ignore names columns of --exact; add --exact, or leave it out")
    from fedprint.cli.results.summary import results_of
    from fedprint.lab.project import find_root
    from fedprint.reports.pages.compare import write_comparison

    a, b = results_of(first), results_of(second)
    print(
        write_comparison(
            a, b, _replaceable(out) if out else find_root() / "work" / "comparisons" / f"{a.name}-{b.name}"
        )
    )


def _replaceable(out: Path) -> Path:
    """Return a folder that may be replaced whole. Raises FedprintError where it holds anything but a comparison."""
    if out.is_dir() and any(out.iterdir()) and not (out / "comparison.csv").is_file():
        raise FedprintError(f"--out {out} holds other files, which a comparison would replace; name a new folder")
    return out


def _compare_rows(first: str, second: str, ignore: list[str] | None) -> None:
    from fedprint.cli.results.summary import results_of
    from fedprint.evaluation.agreement import IGNORED, agreement
    from fedprint.evaluation.rows import read_measurements

    files = [
        Path(name) if name.endswith(".jsonl") else results_of(name) / "measurements.jsonl" for name in (first, second)
    ]
    columns = tuple(ignore or IGNORED)
    compared = agreement(read_measurements(files[0]), read_measurements(files[1]), columns)
    _print_agreement(compared, columns)
    if not compared.holds:
        raise typer.Exit(1)


def _print_agreement(compared: Agreement, ignore: tuple[str, ...]) -> None:
    from fedprint.evaluation.agreement import described

    for title, pairs in (("within", compared.within), ("BEYOND", compared.beyond)):
        for a, b in pairs:
            numbers = [f"{row['value']} [{row['lo']}, {row['hi']}]" for row in (a, b)]
            print(f"{title}  {described(a, ignore)}: {' | '.join(numbers)}")
    for title, rows in (("only in A", compared.missing), ("only in B", compared.added)):
        for row in rows:
            print(f"{title}  {described(row, ignore)}: {row['value']}")
    print(
        f"{compared.same} rows agree to the byte (without {', '.join(ignore)}), {len(compared.within)} within each"
        f" other's intervals, {len(compared.beyond)} beyond them; {len(compared.missing)} only in A,"
        f" {len(compared.added)} only in B"
    )
