"""The command ``fedprint reconstruct``: settings, the folder of results, and the table that it prints."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from rich.table import Table

from fedprint.errors import FedprintError
from fedprint.evaluation.rows import Row, read_measurements
from fedprint.kinds.config_files import apply_assignments, one_line
from fedprint.kinds.federation.finished import open_finished
from fedprint.kinds.federation.reattack import on_finished
from fedprint.kinds.hardware import hardware_for
from fedprint.kinds.reconstruction.settings import RecordedInversion, RecordedSettings
from fedprint.kinds.reconstruction.stages import RECORDED, RECORDED_WORK, ROWS
from fedprint.lab.project import find_root
from fedprint.lab.runner import file_name
from fedprint.lab.workers.pool import Pool


def run_recorded(
    store: Path | str, assignments: Sequence[str], out: Path | None, pool: Pool | None = None
) -> tuple[Table, Path]:
    """Attack the updates of a finished run; return a table of the main numbers and the folder of all of them.

    Stages run in an open ``pool``, by default on this machine.
    """
    root = find_root()
    hardware, others = hardware_for(root, assignments)
    recorded, config = open_finished(root, store), settings_of(others)
    folder = out or root / "work" / "reconstructions" / file_name(f"{recorded.name}-{config.digest()}")
    job = recorded.job(RecordedSettings(experiment=recorded.config, inversion=config), RECORDED_WORK)
    with on_finished(root, recorded, job, RECORDED, hardware, title="reconstruct", pool=pool) as made:
        folder.mkdir(parents=True, exist_ok=True)
        for file in made["comparison"].iterdir():
            shutil.copyfile(file, folder / file.name)
    return table_of(read_measurements(folder / ROWS), recorded.name), folder


def settings_of(assignments: Sequence[str]) -> RecordedInversion:
    """Return the settings with ``a.b=c`` assignments; FedprintError is one line."""
    values = apply_assignments(RecordedInversion().model_dump(mode="json"), assignments)
    try:
        return RecordedInversion.model_validate(values)
    except ValidationError as error:
        raise FedprintError(one_line(error, "reconstruct", RecordedInversion, assignments)) from None


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
