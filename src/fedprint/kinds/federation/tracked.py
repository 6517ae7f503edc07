"""Tracking of a federation: its configuration, data, model, curves, utility, attacks, analyses, privacy."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedprint.data.formats.files import read_json
from fedprint.data.sources.registry import label_of
from fedprint.evaluation.rows import NUMBERS, Row, read_measurements
from fedprint.kinds.federation.config import Experiment
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done
from fedprint.lab.tracking.origin import flat
from fedprint.lab.tracking.runs import DataUse, Point, Run, RunHead
from fedprint.reports.numbers.people import may_show, write_shown

SHOWN = ("ap", "top1", "accuracy", "auc")
"""Metrics of analyses that are tracked; the others stand in the report's table."""


def head_of(config: Experiment, job: Job) -> RunHead:
    """Return the head of the MLflow run of one prior and seed."""
    return RunHead(
        experiment="fedprint",
        key={"experiment": config.name, "prior": job.prior, "seed": str(job.seed), "config": config.digest()},
        name=f"{config.name} {job.prior} seed {job.seed}",
        params={**parameters(config), "prior": job.prior, "seed": job.seed},
        tags={"fast": config.fast},
        expected=(DataUse(name=label_of(config.data), digest=job.data),),
        model=config.model.name,
        group=config.name,
        description=config.report.title,
    )


def parameters(config: Experiment) -> dict[str, Any]:
    """Return the resolved configuration, flat, and its hash."""
    return {**dict(flat(config.model_dump(mode="json"))), "config_hash": config.digest()}


def data_use(details: Mapping[str, Any]) -> DataUse:
    """Return which data a run used: its name, digest and counts."""
    data = details["data"]
    counts = {name: data[name] for name in ("users", "examples", "per_user_min", "per_user_median", "per_user_max")}
    return DataUse(name=data["name"], digest=data["sha256"], counts=counts)


def log_federation(config: Experiment, done: Done, run: Run) -> None:
    """Track the results of a finished federation and of the attacks on it."""
    out = done.outputs["evaluation"]
    details = read_json(out / "details.json")
    data = data_use(details)
    run.log_data([data])
    model = run.log_model(done.outputs["model"], name=config.model.name, params={"dataset": data.name})
    run.log_metrics(list(_measured(config, out, details)), model=model, data=data)
    spent = [row for row in read_measurements(out / "analysis_rows.jsonl") if _is_spent(row)]
    shown = ("delta", "adjacency", "sampling", "not_covered")
    tags = {f"privacy.{name}": row[name] for row in spent if row["protects"] == "device" for name in shown}
    run.set_tags({**tags, "store_checksum": details["store_checksum"], "config_hash": config.digest()})
    log_results(run, out, details)
    log_updates(done, run)


def log_results(run: Run, folder: Path, details: Mapping[str, Any], below: str | None = None) -> None:
    """Copy the files of a result to the run; of data that may not be shared without ids and words of users."""
    if may_show(details):
        run.log_artifacts(folder, below)
        return
    with tempfile.TemporaryDirectory() as scratch:
        write_shown(folder, shown := Path(scratch) / "shown")
        run.log_artifacts(shown, below)


def log_updates(done: Done, run: Run) -> None:
    """Log the manifest of recorded updates, with its digests, where there are updates."""
    observed = done.outputs.get("observed")
    if observed is not None and (manifest := observed / "complete.json").is_file():
        run.log_artifacts(manifest, "updates")


def _measured(config: Experiment, out: Path, details: Mapping[str, Any]) -> Iterator[Point]:
    """Yield the curves by round, utility, every attack and analysis, and the privacy that was spent."""
    yield from by_round(details)
    last = config.federation.rounds - 1
    for row in read_measurements(out / "rows.jsonl"):
        yield from ((name, float(value), last) for name, value in _row_metrics(row, config.adversaries[-1]))
    rows = read_measurements(out / "analysis_rows.jsonl")
    yield from ((_spent_name(row), float(row["value"]), int(row["rounds"]) - 1) for row in rows if _is_spent(row))
    yield from analysis_points(rows, last)


def by_round(details: Mapping[str, Any]) -> Iterator[Point]:
    """Yield loss, update norm, utility and AP by round, from details.json of the evaluation."""
    names = {"loss": "train/loss", "update_norm": "train/update_norm", "utility": "utility/federated"}
    for entry in details["history"]:
        yield from ((names[key], float(value), int(entry["round"])) for key, value in entry.items() if key in names)
    for row in details["by_round"]:
        if row["ap"] is not None:
            yield "attack/ap_by_round", float(row["ap"]), int(row["last"])
            yield "attack_interval/ap_by_round_lo", float(row["lo"]), int(row["last"])
            yield "attack_interval/ap_by_round_hi", float(row["hi"]), int(row["last"])


def analysis_points(rows: Sequence[Row], step: int) -> Iterator[Point]:
    """Yield the numbers of analyses that are tracked."""
    named = _analysis_names([row for row in rows if row["metric"] in SHOWN and row["value"] is not None])
    yield from ((name, float(row["value"]), step) for name, row in named.items())


def _analysis_names(rows: Sequence[Row]) -> dict[str, Row]:
    """Return a name for each row, with the keys in which the rows of its analysis differ."""
    named: dict[str, Row] = {}
    for analysis in dict.fromkeys(str(row["analysis"]) for row in rows):
        same = [row for row in rows if str(row["analysis"]) == analysis]
        keys = [key for key in same[0] if key not in NUMBERS and len({str(row.get(key)) for row in same}) > 1]
        for row in same:
            differing = [f"{key}={row[key]}" for key in keys if row.get(key) is not None]
            named.setdefault("/".join(["analysis", analysis, *differing, str(row["metric"])]), row)
    return named


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
