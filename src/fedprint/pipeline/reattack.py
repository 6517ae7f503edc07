"""Attack an existing store again: other attacks or settings, same records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from fedprint.pipeline.config import Experiment, check_experiment, read_resolved
from fedprint.pipeline.config_files import apply_assignments
from fedprint.pipeline.stages.paths import Job, Paths
from fedprint.pipeline.workspace import find_root
from fedprint.types import FedprintError

CHANGEABLE = ("attacks", "selection", "evaluation")


def reattack(store: Path, assignments: Sequence[str], out: Path | None) -> tuple[Table, Path]:
    """Run attack and evaluate on ``store`` (a folder updates/<prior>-<seed>); return a table and the results' folder.

    Only settings of the attack and the evaluation may be changed: the records are what they are.
    """
    from fedprint.pipeline.stages import analyse, attack, evaluate

    folder = store.resolve().parent if store.name == "observed" else store.resolve()
    base, item = folder.parent.parent, folder.name
    if not (folder / "observed").is_dir() or not (base / "config.yaml").is_file():
        raise FedprintError(f"{store}: no update store of a fedprint run; give its folder updates/<prior>-<seed>")
    config = _changed(read_resolved(base / "config.yaml"), assignments, str(base / "config.yaml"))
    results = out or find_root() / "work" / "attacks" / f"{config.name}-{item}-{config.digest()}"
    known = {f"{prior}-{seed}": (prior, seed) for prior in config.split.priors for seed in config.seeds}
    if item not in known:
        raise FedprintError(f"{store}: '{item}' is no prior and seed of this run; choose of {', '.join(known)}")
    found, seed = known[item]
    job = Job(config=config, prior=found, seed=seed, paths=Paths(base=base, item=item, results=results))
    attack.run(job)
    analyse.run(job)
    return _table(evaluate.run(job), f"{config.name} {item}"), results


def _changed(config: Experiment, assignments: Sequence[str], origin: str) -> Experiment:
    for assignment in assignments:
        if assignment.split(".")[0].split("=")[0] not in CHANGEABLE:
            raise FedprintError(
                f"--set {assignment}: an existing store can only get other {', '.join(CHANGEABLE)}; to train anew, "
                "use fedprint run"
            )
    return check_experiment(apply_assignments(config.model_dump(mode="json"), assignments), origin)


def _table(rows: Sequence[dict[str, object]], title: str) -> Table:
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
