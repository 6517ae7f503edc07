"""Points of the privacy-utility plane: read from their results, and tracked so that they can be set side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedprint.data.formats.files import read_json
from fedprint.data.sources.registry import label_of
from fedprint.defences.secure_aggregation import server_view
from fedprint.evaluation.rows import read_measurements
from fedprint.evaluation.tradeoffs.tradeoff import Point, point_from_json
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.federation.graph import POINT_WORK
from fedprint.kinds.federation.tracked import analysis_points, by_round, data_use, log_results, log_updates, parameters
from fedprint.lab.graph import Job
from fedprint.lab.keys import digest_of, source_digest
from fedprint.lab.runner import Done
from fedprint.lab.tracking.runs import DataUse, Run, RunHead
from fedprint.lab.tracking.runs import Point as Tracked
from fedprint.plugins import installed_digests
from fedprint.types import FedprintError, Linkage

STAGE = "point"
"""The stage that makes a point, and the name of its output."""


def read_point(folder: Path) -> Point:
    """Return a finished point."""
    rows, analyses = (read_measurements(folder / name) for name in ("rows.jsonl", "analysis_rows.jsonl"))
    return point_from_json(read_json(folder / "point.json"), rows, analyses)


def points_of(ended: Sequence[Done | FedprintError]) -> list[Point | FedprintError]:
    """Return the points of finished jobs, errors as they are."""
    return [read_point(one.outputs[STAGE]) if isinstance(one, Done) else one for one in ended]


def code_of_points() -> str:
    """Return a hash of all code that the numbers of a point depend on, with that of all plug-ins."""
    return digest_of([*(source_digest(stage.code) for stage in POINT_WORK.graph.stages), *installed_digests()])


def point_head(experiment: str, base: Experiment, job: Job) -> RunHead:
    """Return the head of the MLflow run of a point: all parameters, and what varies as parameters of their own.

    ``experiment`` is MLflow's; ``base`` is the undefended experiment of the plane or study, by which runs are grouped.
    """
    # An audit's job has settings of its own beside those of the experiment.
    values = {key: value for key, value in job.config.model_dump(mode="json").items() if key in type(base).model_fields}
    config = base.model_validate(values).model_copy(
        update={"name": base.name, "report": base.report, "fast": base.fast}
    )
    params = {**parameters(config), "prior": job.prior, "seed": job.seed, "view": server_view(config.defences)}
    return RunHead(
        experiment=experiment,
        key={"group": base.name, "point": job.label, "config": job.config.digest()},
        name=f"{base.name} {job.label}",
        params={**params, **job.varies},
        tags={"fast": base.fast},
        expected=(DataUse(name=label_of(base.data), digest=job.data),),
        model=base.model.name if job.work is POINT_WORK else "",
        group=base.name,
        description=base.report.title,
    )


def log_point(base: Experiment, done: Done, run: Run) -> None:
    """Track a point: utility and AP under short names, for charts over many runs, and all numbers behind them."""
    folder = done.outputs[STAGE]
    details = read_json(folder / "details.json")
    data = data_use(details)
    run.log_data([data])
    model = None
    if (weights := done.outputs.get("model")) is not None:
        model = run.log_model(weights, name=base.model.name, params={"dataset": data.name})
    run.log_metrics([*by_round(details), *_measured(read_point(folder))], model=model, data=data)
    log_results(run, folder, details, "point")
    log_updates(done, run)


def _measured(point: Point) -> Iterator[Tracked]:
    yield "utility", point.utility.value, 0
    yield "utility_interval/lo", point.utility.lo, 0
    yield "utility_interval/hi", point.utility.hi, 0
    linkages: tuple[Linkage, ...] = ("update", "device")
    for linkage in linkages:
        if (strongest := point.strongest_by(linkage)) is not None:
            yield f"ap_{linkage}", strongest.value, 0
            yield f"attack_interval/ap_{linkage}_lo", strongest.lo, 0
            yield f"attack_interval/ap_{linkage}_hi", strongest.hi, 0
            yield f"attack/chance_{linkage}", strongest.chance, 0
    for name in sorted({number.adversary for number in point.attacks}):
        yield f"attack/ap_{name}", point.attack(name).value, 0
    for row in point.analyses:
        if row.get("analysis") == "privacy" and row["metric"] == "epsilon" and row["value"] is not None:
            yield f"privacy/epsilon_{row['protects']}_{row['accountant']}", float(row["value"]), 0
    yield from analysis_points(point.analyses, 0)
    yield from ((f"overhead/{name}", float(value), 0) for name, value in point.overhead.items() if value is not None)
