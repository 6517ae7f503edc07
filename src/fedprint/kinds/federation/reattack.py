"""Attack an existing store again: other attacks or settings, same records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.table import Table

from fedprint.data.formats.files import replace_folder
from fedprint.errors import FedprintError
from fedprint.evaluation.rows import Row, read_measurements
from fedprint.kinds import PRELOADED
from fedprint.kinds.config_files import apply_assignments
from fedprint.kinds.federation.config import Experiment, check_experiment
from fedprint.kinds.federation.finished import Finished, open_finished
from fedprint.kinds.federation.graph import ANALYSE, ASK, ATTACK, EVALUATE
from fedprint.kinds.hardware import Hardware, hardware_for
from fedprint.kinds.laboratory import lab_in
from fedprint.lab.graph import Job, Stage
from fedprint.lab.project import find_root
from fedprint.lab.runner import file_name
from fedprint.lab.workers.pool import LocalPool, Pool

AGAIN = (ATTACK, ANALYSE, EVALUATE)
CHANGEABLE = ("attacks", "selection", "evaluation")


def reattack(
    store: Path | str, assignments: Sequence[str], out: Path | None, pool: Pool | None = None
) -> tuple[Table, Path]:
    """Attack and evaluate a ``store`` (see :func:`open_finished`); return a table and the results' folder.

    Only settings of the attack and the evaluation may be changed: the records stay as they are. Stages run in an open
    ``pool``, by default on this machine.
    """
    root = find_root()
    recorded = open_finished(root, store)
    hardware, assignments = hardware_for(root, assignments)
    config = _changed(recorded.config, assignments, str(store))
    results = out or root / "work" / "attacks" / file_name(f"{recorded.name}-{config.digest()}")
    with on_finished(root, recorded, recorded.job(config), AGAIN, hardware, title="attack", pool=pool) as made:
        for name in (output for stage in AGAIN for output in stage.outputs):
            replace_folder(made[name], results / name)
    return _table(read_measurements(results / "evaluation" / "rows.jsonl"), recorded.name), results


@contextmanager
def on_finished(
    root: Path,
    recorded: Finished,
    job: Job,
    stages: Sequence[Stage],
    hardware: Hardware,
    *,
    title: str,
    pool: Pool | None,
) -> Iterator[Mapping[str, Path]]:
    """Run stages of a job on the outputs of a finished federation; the caller owns their outputs until the block ends.

    Each stage runs in an open ``pool`` (None: on this machine), where it can open its inputs alone. Raises
    FedprintError.
    """
    with (
        nullcontext(pool) if pool else LocalPool(PRELOADED) as running,
        lab_in(root, running, tracker=None, hardware=hardware) as lab,
    ):
        paths = dict(recorded.outputs)
        if any(output not in paths for output in ASK.outputs):
            # Of a point that was finished before its updates were kept, the questions are gone.
            paths |= lab.run_on(recorded.job(recorded.config), [ASK], paths, title=title)
        yield lab.run_on(job, stages, paths, title=title)


def _changed(config: Experiment, assignments: Sequence[str], origin: str) -> Experiment:
    for assignment in assignments:
        if assignment.split(".")[0].split("=")[0] not in CHANGEABLE:
            raise FedprintError(
                f"--set {assignment}: an existing store can only get other {', '.join(CHANGEABLE)}; to train anew, "
                "use fedprint run"
            )
    return check_experiment(apply_assignments(config.model_dump(mode="json"), assignments), origin, assignments)


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
