"""Attack an existing store again: other attacks or settings, same records."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from fedprint.errors import FedprintError
from fedprint.evaluation.rows import Row, read_measurements
from fedprint.kinds import PRELOADED
from fedprint.kinds.config_files import apply_assignments
from fedprint.kinds.federation.config import Experiment, check_experiment
from fedprint.kinds.federation.finished import job_of_finished, open_finished
from fedprint.kinds.federation.graph import ANALYSE, ATTACK, EVALUATE
from fedprint.kinds.laboratory import lab_in
from fedprint.lab.graph import Job, Stage
from fedprint.lab.pool import LocalPool
from fedprint.lab.project import find_root

CHANGEABLE = ("attacks", "selection", "evaluation")


def reattack(store: Path | str, assignments: Sequence[str], out: Path | None) -> tuple[Table, Path]:
    """Attack and evaluate a ``store`` (see :func:`open_finished`); return a table and the results' folder.

    Only settings of the attack and the evaluation may be changed: the records are what they are.
    """
    root = find_root()
    recorded = open_finished(root, store)
    config = _changed(recorded.config, assignments, str(store))
    results = out or root / "work" / "attacks" / f"{config.name}-{recorded.item}-{config.digest()}"
    places = run_stages(root, job_of_finished(recorded, config), (ATTACK, ANALYSE, EVALUATE), recorded.places)
    for stage in (ATTACK, ANALYSE, EVALUATE):
        for name in stage.outputs:
            replace_folder(places[name], results / name)
    rows = read_measurements(results / "evaluation" / "rows.jsonl")
    return _table(rows, f"{config.name} {recorded.item}"), results


def run_stages(root: Path, job: Job, stages: Sequence[Stage], places: Mapping[str, Path]) -> dict[str, Path]:
    """Run stages of a job on outputs that are there; return these and those that the stages make.

    Each stage runs in a process that can open its inputs alone, and no cache gets to see what it makes.
    """
    known = dict(places)
    with LocalPool(PRELOADED) as pool, lab_in(root, pool, tracker=None) as lab:
        for stage in stages:
            # A run whose pictures were not kept is attacked without them.
            inputs = {name: known[name] for name in stage.inputs if name in known}
            known |= lab.run_on(job, stage, inputs, title=f"{job.label}-again")
    return known


def replace_folder(source: Path, target: Path) -> None:
    """Move a folder to where another may be."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)


def _changed(config: Experiment, assignments: Sequence[str], origin: str) -> Experiment:
    for assignment in assignments:
        if assignment.split(".")[0].split("=")[0] not in CHANGEABLE:
            raise FedprintError(
                f"--set {assignment}: an existing store can only get other {', '.join(CHANGEABLE)}; to train anew, "
                "use fedprint run"
            )
    return check_experiment(apply_assignments(config.model_dump(mode="json"), assignments), origin)


def _table(rows: Sequence[Row], title: str) -> Table:
    table = Table("attack", "linkage", "AP", "95 % interval", "chance", "questions", "users", title=title)
    for row in rows:
        if row["metric"] == "ap":
            numbers = [f"{100 * float(str(row[k])):.1f} %" for k in ("value", "lo", "hi", "chance")]
            mark = " (selected)" if row["selected"] else ""
            interval = f"{numbers[1]} to {numbers[2]}"
            table.add_row(
                f"{row['attack']}{mark}",
                str(row["linkage"]),
                numbers[0],
                interval,
                numbers[3],
                str(row["n_questions"]),
                str(row["n_users"]),
            )
    return table
