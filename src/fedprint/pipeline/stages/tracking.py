"""What each stage tells MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedprint.evaluation.rows import read_measurements
from fedprint.pipeline.config import Experiment
from fedprint.pipeline.stages.paths import Job, read_json
from fedprint.pipeline.workspace import find_root
from fedprint.tracking import runs
from fedprint.tracking.runs import TrackedRun, tracked_run


@contextmanager
def job_run(job: Job) -> Iterator[TrackedRun]:
    """Open the one flat run of (experiment, prior, seed, configuration)."""
    digest = job.config.digest()
    key = {"experiment": job.config.name, "prior": job.prior, "seed": str(job.seed), "config": digest}
    name = f"{job.config.name} {job.prior} seed {job.seed}"
    with tracked_run(find_root(), "fedprint", key, name, parameters(job.config, job), {}) as run:
        yield run


def parameters(config: Experiment, job: Job | None = None) -> dict[str, Any]:
    """Return the resolved configuration, flat, and its hash."""
    found = dict(flat(config.model_dump(mode="json", exclude={"attacks"})))
    found["attacks"] = " ".join(attack.name for attack in config.attacks)
    found["config_hash"] = config.digest()
    return found | ({"prior": job.prior, "seed": job.seed} if job else {})


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as ``data.clients`` and their values."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def log_evaluation(run: TrackedRun, job: Job, rows: Sequence[Mapping[str, Any]]) -> None:
    """Log utility, the selected attacker and every other attack, each with its interval; and the training curve.

    And what was spent of a privacy budget, an epsilon per accountant and one of a user with both devices, with what a
    device's is an epsilon of as tags.
    """
    history = read_json(job.paths.updates / "utility" / "history.json")
    names = {"loss": "train/loss", "update_norm": "train/update_norm", "utility": "utility/federated"}
    points = [
        (names[key], float(value), int(entry["round"]))
        for entry in history["rounds"]
        for key, value in entry.items()
        if key in names
    ]
    last = job.config.federation.rounds - 1
    for row in rows:
        points += [(name, float(value), last) for name, value in _row_metrics(row, job.config.adversaries[-1])]
    spent = [row for row in read_measurements(job.paths.evaluation / "analysis_rows.jsonl") if _is_spent(row)]
    points += [(_spent_name(row), float(row["value"]), int(row["rounds"]) - 1) for row in spent]
    run.log_metrics(points)
    of_device = [row for row in spent if row["protects"] == "device"]
    told = ("delta", "adjacency", "sampling", "not_covered")
    tags = {f"privacy.{name}": row[name] for row in of_device for name in told}
    run.set_tags({**tags, "store_checksum": history["store_checksum"], "config_hash": job.config.digest()})


def _is_spent(row: Mapping[str, Any]) -> bool:
    return row.get("analysis") == "privacy" and row["metric"] == "epsilon"


def _spent_name(row: Mapping[str, Any]) -> str:
    whose = "" if row["protects"] == "device" else f"_{row['protects']}"
    return f"privacy/epsilon{whose}_{row['accountant']}"


def _row_metrics(row: Mapping[str, Any], headline: str) -> Iterator[tuple[str, float]]:
    """Name a row's numbers so that the UI groups them: attack/, utility/, attacks_all/."""
    if row["attack"] is None:
        gain = row["metric"] == "mae_gain_over_median"
        name = f"{row['training']}_gain" if gain else row["training"]
        if name != "federated":
            yield f"utility/{name}", row["value"]
        yield f"utility_interval/{name}_lo", row["lo"]
        yield f"utility_interval/{name}_hi", row["hi"]
        return
    known = "" if row["adversary"] == headline else f"_{row['adversary']}"
    if row["metric"] in ("ap", "ap_over_chance", "top1") and row["selected"]:
        yield f"attack/{row['metric']}_{row['linkage']}{known}", row["value"]
        yield f"attack_interval/{row['metric']}_{row['linkage']}{known}_lo", row["lo"]
        yield f"attack_interval/{row['metric']}_{row['linkage']}{known}_hi", row["hi"]
        if row["metric"] == "ap":
            yield f"attack/chance_{row['linkage']}{known}", row["chance"]
    if row["metric"] == "ap":
        yield f"attacks_all/{row['attack']}_{row['linkage']}{known}", row["value"]


def log_report(config: Experiment, folder: Path, metrics: Mapping[str, float]) -> None:
    """Log the headline numbers, the page, the figures and the tables in a run of their own."""
    key = {"experiment": config.name, "config": config.digest()}
    points = [(f"headline/{name}", float(value), 0) for name, value in metrics.items()]
    runs.log_report(find_root(), config.name, key, folder, points=points, params=parameters(config))
