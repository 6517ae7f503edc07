"""The kind of experiment that trains federations on users' data and attacks what the server saw of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedprint.data.files import read_json
from fedprint.data.sources import may_be_shared
from fedprint.kinds.base import Costs, Findings, Source
from fedprint.kinds.federation.config import Experiment, load_experiment
from fedprint.kinds.federation.jobs import jobs_of
from fedprint.kinds.federation.plan import costs_of
from fedprint.kinds.federation.tracked import data_use, head_of, log_federation
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking import Run, RunHead
from fedprint.reports.page import ReportSummary, write_report
from fedprint.reports.wording import Estimate


class FederationKind:
    """Federations under several priors and seeds, each attacked."""

    name = "federation"
    mark = None

    def load(self, source: Source) -> Experiment:
        """Return the experiment of a file; a member of a suite has values of its own."""
        return load_experiment(source)

    def jobs(self, config: Experiment) -> Sequence[Job]:
        """Return one job for each prior and seed."""
        return jobs_of(config)

    def carry_out(self, config: Experiment, lab: Lab, out: Path) -> Findings:
        """Run every prior and seed and write one page about all of them; one that fails fails the experiment."""
        found = lab.run(self.jobs(config), title=config.name)
        for one in found:
            if not isinstance(one, Done):
                raise one
        done = [one for one in found if isinstance(one, Done)]
        summary = write_page(config, [one.outputs["evaluation"] for one in done], out)
        details = read_json(done[0].outputs["evaluation"] / "details.json")
        return Findings(metrics=headline(summary), done=done, data=(data_use(config, details),))

    def costs(self, config: Experiment) -> Costs:
        """Return what the federations and attacks cost, from a few real client updates."""
        return costs_of(config)

    def head(self, config: Experiment, job: Job) -> RunHead:
        """Return what is tracked of a job from its start."""
        return head_of(config, job)

    def log(self, config: Experiment, done: Done, run: Run) -> None:
        """Track what a finished job found."""
        log_federation(config, done, run)

    def shareable(self, config: Experiment) -> bool:
        """Return whether the data set declares that its samples may be shown."""
        return may_be_shared(config.data, None)


def write_page(config: Experiment, evaluations: Sequence[Path], out: Path) -> ReportSummary:
    """Write the report of evaluated priors and seeds."""
    return write_report(
        experiment=config.name,
        title=config.report.title,
        evaluations=evaluations,
        config_text=config.text(),
        out=out,
    )


def headline(summary: ReportSummary) -> dict[str, float]:
    """Return the few numbers that DVC's and MLflow's tables show, with their intervals."""
    found = {f"{metric}_{linkage}": e for linkage in ("update", "device") for metric, e in _of(summary, linkage)}
    if summary.utility is not None:
        found["utility"] = summary.utility
    ends: Mapping[str, float | None] = {
        f"{name}{end}": value
        for name, e in found.items()
        for end, value in (("", e.value), ("_lo", e.lo), ("_hi", e.hi))
    }
    return {name: value for name, value in ends.items() if value is not None}


def _of(summary: ReportSummary, linkage: str) -> list[tuple[str, Estimate]]:
    estimates = summary.update if linkage == "update" else summary.device
    return [(metric, estimates[metric]) for metric in ("ap", "ap_over_chance", "top1") if metric in estimates]
