"""The kind of experiment that takes images back out of gradients, under mechanisms of several strengths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedprint.evaluation.rows import Row
from fedprint.kinds.base import Costs, Drawn, Findings, OnOneSource, Request
from fedprint.kinds.inversion.config import InversionConfig, InversionExperiment
from fedprint.kinds.inversion.jobs import job_of, parts_of
from fedprint.kinds.inversion.page import publish
from fedprint.kinds.inversion.plan import costs_of
from fedprint.kinds.inversion.results.collect import check_images, results_of
from fedprint.kinds.inversion.results.rows import all_rows
from fedprint.kinds.inversion.tracked import data_use, head_of, log_job
from fedprint.kinds.jobs import crashed
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.runs import Point, Run, RunHead
from fedprint.lab.versions.dvc_yaml import Plot


class InversionKind(OnOneSource):
    """Mechanisms at several strengths: what they cost in accuracy, and attacks on the gradients under them."""

    name = "inversion"
    mark = "mechanisms"

    def load(self, request: Request) -> InversionExperiment:
        """Return the experiment of a file."""
        return InversionExperiment.of(request, InversionConfig)

    def jobs(self, config: InversionExperiment) -> Sequence[Job]:
        """Return one job for each federation, and for each adversary of each cell."""
        return [job_of(config, part) for part in parts_of(config)]

    def carry_out(self, config: InversionExperiment, lab: Lab, out: Path) -> Findings:
        """Run all jobs and write the report; a failed mechanism is left out and named.

        A federation that diverges under large noise is a result and no failure.
        """
        check_images(config)
        jobs = self.jobs(config)
        ended = lab.run(jobs, title=config.name)
        results = results_of(config, dict(zip(parts_of(config), ended, strict=True)))
        rows = all_rows(results)
        publish(results, rows, out)
        scores = [row for row in rows if row.get("selected")]
        return Findings(
            metrics=_headline(config, scores),
            points=[point for row in scores for point in _points(row)],
            done=[one for one in ended if isinstance(one, Done)],
            failures=crashed(zip([job.label for job in jobs], ended, strict=True)),
            data=(data_use(config, jobs[0].data),),
            plots=(_plot(scores),),
            shows_data=True,
        )

    def costs(self, config: InversionExperiment, device: str) -> Costs:
        """Return the costs of federations and attacks, from a round and a few evaluations of each network."""
        return costs_of(config, len(parts_of(config)), device)

    def head(self, config: InversionExperiment, job: Job) -> RunHead:
        """Return the head of the MLflow run of a job."""
        return head_of(config, job)

    def log(self, config: InversionExperiment, done: Done, run: Run) -> None:
        """Track the results of a finished job."""
        log_job(config, done, run)


def _headline(config: InversionExperiment, scores: Sequence[Row]) -> dict[str, float]:
    """Return every mechanism's CAP before the first attack on its first batch size, with intervals."""
    first = config.config.attacks[0]
    numbers: dict[str, float] = {}
    for row in scores:
        if (row["attack"], row["attack_batch"]) == (first.attack.name, first.batches[0]):
            ends = (("", "value"), ("_lo", "lo"), ("_hi", "hi"))
            numbers |= {f"{row['metric']}_{row['defence']}{end}": float(row[key]) for end, key in ends}
    return numbers


def _points(row: Row) -> list[Point]:
    name = f"{row['metric']}/{row['attack']}/{row['defence']}/batch{row['attack_batch']}"
    return [(f"{name}{end}", float(row[key]), 0) for end, key in (("", "value"), ("_lo", "lo"), ("_hi", "hi"))]


def _plot(scores: Sequence[Row]) -> Drawn:
    """Return CAP against reconstruction of every mechanism."""
    rows = [
        {"setting": f"{row['attack']} batch {row['attack_batch']} {row['defence']}", "cap": row["value"]}
        for row in scores
        if row["metric"] == "cap_reconstruction"
    ]
    title = "CAP against reconstruction by mechanism (higher: accurate and hard to invert)"
    return Drawn(plot=Plot(file="cap.csv", template="bar_horizontal", x="cap", y="setting", title=title), rows=rows)
