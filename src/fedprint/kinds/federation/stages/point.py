"""Stage point: the evaluation of a point of the privacy-utility plane, reduced to what a plane needs."""

from __future__ import annotations

import shutil
from dataclasses import replace

from fedprint.data.formats.files import read_json, write_json
from fedprint.evaluation.rows import read_measurements
from fedprint.evaluation.tradeoffs.tradeoff import point_json, point_of
from fedprint.kinds.federation.stages import evaluate
from fedprint.lab.graph import Task

KEPT = ("rows.jsonl", "analysis_rows.jsonl", "details.json")


def run(task: Task) -> None:
    """Evaluate, and write rows, details and the point itself: some hundred kilobytes."""
    whole, out = task.scratch / "evaluation", task.at("point")
    task = replace(task, paths={**task.paths, **{path.name: path for path in task.at("collected").iterdir()}})
    evaluate.run(replace(task, paths={**task.paths, "evaluation": whole}))
    out.mkdir()
    for name in KEPT:
        shutil.copyfile(whole / name, out / name)
    overhead = {**read_json(task.at("overhead") / "overhead.json"), **read_json(task.at("overhead") / "seconds.json")}
    details, rows = read_json(out / "details.json"), read_measurements(out / "rows.jsonl")
    point = point_of(
        task.key, rows, details["ap_by_user"], overhead, details["utility_by_user"], details["linked_by_user"]
    )
    write_json(out / "point.json", point_json(point))
