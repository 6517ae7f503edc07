"""The command ``fedprint reconstruct``: settings, the folder of results, and the table that it prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from rich.table import Table

from fedprint.evaluation.rows import Row
from fedprint.kinds.config_files import apply_assignments, one_line
from fedprint.kinds.federation.reattack import job_of
from fedprint.kinds.inversion.recorded import RecordedInversion
from fedprint.kinds.workspace import find_root
from fedprint.types import FedprintError


def run_recorded(store: Path, assignments: Sequence[str], out: Path | None) -> tuple[Table, Path]:
    """Attack the updates of a finished run; return a table of the main numbers and the folder of all of them."""
    from fedprint.kinds.inversion.recorded_judge import run

    job, config = job_of(store), settings_of(assignments)
    folder = out or find_root() / "work" / "reconstructions" / f"{job.config.name}-{job.paths.item}-{config.digest()}"
    return table_of(run(job, config, folder), f"{job.config.name} {job.paths.item}"), folder


def settings_of(assignments: Sequence[str]) -> RecordedInversion:
    """Return the settings with ``a.b=c`` assignments; FedprintError is one line."""
    values = apply_assignments(RecordedInversion().model_dump(mode="json"), assignments)
    try:
        return RecordedInversion.model_validate(values)
    except ValidationError as error:
        raise FedprintError(one_line(error, "--set", RecordedInversion)) from None


def table_of(rows: Sequence[Row], title: str) -> Table:
    """Return the main numbers for the terminal."""
    table = Table("adversary", "what", "value", "95 % interval", "chance", "images", "devices", title=title)
    for row in rows:
        if words := _words(row):
            chance = "" if row["chance"] is None else _shown(row, "chance")
            interval = f"{_shown(row, 'lo')} to {_shown(row, 'hi')}"
            numbers = (_shown(row, "value"), interval, chance, str(row["n_questions"]), str(row["n_users"]))
            table.add_row(str(row["adversary"]), words, *numbers)
    return table


def _shown(row: Row, name: str) -> str:
    number = float(row[name])
    return f"{number:.2f}" if row["unit"] == "ratio" else f"{100 * number:.1f} %"


def _words(row: Row) -> str | None:
    """Return what a row is called in the terminal, None for one that is in the file only."""
    if row["metric"] == "reconstruction_success":
        return f"rMSE < {row['threshold']}"
    if row["metric"] == "tracing_accuracy":
        return f"traced among {row['participants']}" if row["participants"] == row["updates"] else None
    if row["metric"] == "example_membership_auc":
        return f"member AUC, {row['attack']}"
    return {"label_accuracy": "labels", "ssim": "SSIM"}.get(str(row["metric"]))
