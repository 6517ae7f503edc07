"""Attack an existing store again: other attacks or settings, same records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from fedprint.data.splits import Prior
from fedprint.kinds.config_files import apply_assignments
from fedprint.kinds.federation.config import Experiment, check_experiment, read_resolved
from fedprint.kinds.workspace import experiments_folder, find_root
from fedprint.lab.graph import Task
from fedprint.types import FedprintError

CHANGEABLE = ("attacks", "selection", "evaluation")


def reattack(store: Path, assignments: Sequence[str], out: Path | None) -> tuple[Table, Path]:
    """Run attack and evaluate on ``store`` (see :func:`job_of`); return a table and the results' folder.

    Only settings of the attack and the evaluation may be changed: the records are what they are.
    """
    from fedprint.kinds.federation.stages import analyse, attack, evaluate

    recorded = job_of(store)
    origin = str(recorded.paths.base / "config.yaml")
    config, item = _changed(recorded.config, assignments, origin), recorded.paths.item
    results = out or find_root() / "work" / "attacks" / f"{config.name}-{item}-{config.digest()}"
    task = replace(recorded, config=config, paths=replace(recorded.paths, results=results))
    attack.run(task)
    analyse.run(task)
    return _table(evaluate.run(task), f"{config.name} {item}"), results


def job_of(store: Path) -> Task:
    """Return the finished item whose updates are in ``store``.

    That is a folder updates/<prior>-<seed>, or observed/ in it; or ``<experiment>`` or ``<experiment>/<prior>-<seed>``
    of one that was run here, by default its first prior and seed.
    """
    folder = _named(store) or (store.resolve().parent if store.name == "observed" else store.resolve())
    base, item = folder.parent.parent, folder.name
    if not (folder / "observed").is_dir() or not (base / "config.yaml").is_file():
        raise FedprintError(
            f"{store}: no update store of a fedprint run; give an experiment that was run, or its folder "
            "updates/<prior>-<seed>"
        )
    config = read_resolved(base / "config.yaml")
    known = _items(config)
    if item not in known:
        raise FedprintError(f"{store}: '{item}' is no prior and seed of this run; choose of {', '.join(known)}")
    found, seed = known[item]
    return Task(config=config, prior=found, seed=seed, paths=Paths(base=base, item=item))


def _named(store: Path) -> Path | None:
    """Return the folder of an experiment's updates, None where ``store`` is no name of one that was run here."""
    if store.exists() or store.is_absolute() or len(store.parts) > 2:
        return None
    name, *item = store.parts
    root = find_root()
    for base in (experiments_folder(root) / name / "artifacts" / name, root / "artifacts" / name):
        if (base / "config.yaml").is_file():
            first = next(iter(_items(read_resolved(base / "config.yaml"))))
            return base / "updates" / (item[0] if item else first)
    return None


def _items(config: Experiment) -> dict[str, tuple[Prior, int]]:
    return {f"{prior}-{seed}": (prior, seed) for prior in config.split.priors for seed in config.seeds}


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
