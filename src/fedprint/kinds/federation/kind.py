"""The kind of experiment that trains federations on users' data and attacks the updates that the server saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedprint.data.formats.files import read_json
from fedprint.evaluation.rows import read_measurements
from fedprint.kinds.base import Costs, Drawn, Findings, OnOneSource, Request
from fedprint.kinds.federation.config import Experiment, load_experiment
from fedprint.kinds.federation.declared import Part, part_of
from fedprint.kinds.federation.jobs import jobs_of
from fedprint.kinds.federation.tracked import data_use, head_of, log_federation
from fedprint.kinds.jobs import all_done
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.runs import Run, RunHead
from fedprint.lab.versions.dvc_yaml import Plot
from fedprint.reports.pages.federation import ReportSummary, write_report
from fedprint.reports.wording import Estimate

ATTACKS = Plot(
    file="attacks.csv",
    template="bar_horizontal",
    x="ap",
    y="attack",
    title="Average precision of single updates by prior and attacker",
)
UTILITY = Plot(
    file="utility.csv", template="scatter", x="round", y="utility", title="Utility of the global model by round"
)
PLOTS = (ATTACKS, UTILITY)


class FederationKind(OnOneSource):
    """Federations under several priors and seeds, each attacked."""

    name = "federation"
    mark = None

    def load(self, request: Request) -> Experiment:
        """Return the experiment of a file, or of a member of a suite."""
        return load_experiment(request)

    def jobs(self, config: Experiment) -> Sequence[Job]:
        """Return one job for each prior and seed."""
        return jobs_of(config)

    def carry_out(self, config: Experiment, lab: Lab, out: Path) -> Findings:
        """Run every prior and seed and write one page about all of them; a failed job fails the experiment."""
        jobs = self.jobs(config)
        done = all_done([job.label for job in jobs], lab.run(jobs, title=config.name))
        users = part_of(lab.root, config.data)
        return findings_of(config, [one.outputs["evaluation"] for one in done], out, users, done)

    def costs(self, config: Experiment, device: str) -> Costs:
        """Return the costs of federations and attacks, from a few real client updates."""
        from fedprint.kinds.federation.plan import costs_of  # late: it brings Lightning, which only a dry run needs

        return costs_of(config, device)

    def head(self, config: Experiment, job: Job) -> RunHead:
        """Return the head of the MLflow run of a job."""
        return head_of(config, job)

    def log(self, config: Experiment, done: Done, run: Run) -> None:
        """Track the results of a finished job."""
        log_federation(config, done, run)


def findings_of(
    config: Experiment, evaluations: Sequence[Path], out: Path, users: Part | None, done: Sequence[Done] = ()
) -> Findings:
    """Write the report of evaluated priors and seeds, and return what is tracked and versioned of it."""
    summary = write_page(config, evaluations, out, users)
    details = read_json(evaluations[0] / "details.json")
    return Findings(
        metrics=headline(summary),
        done=done,
        data=(data_use(details),),
        plots=(_attacks_plot(out), _utility_plot(evaluations)),
        users=users,
    )


def _attacks_plot(out: Path) -> Drawn:
    """Return AP of every attacker beside chance, update by update."""
    rows = [
        {"attack": f"{row['prior']} {row['attack']}", "ap": row["value"], "chance": row["chance"]}
        for row in read_measurements(out / "measurements.jsonl")
        if row["metric"] == "ap" and row["linkage"] == "update" and row["attack"] and row.get("analysis") is None
    ]
    return Drawn(plot=ATTACKS, rows=rows)


def _utility_plot(evaluations: Sequence[Path]) -> Drawn:
    """Return the utility by round of every prior and seed."""
    rows = []
    for details in (read_json(folder / "details.json") for folder in evaluations):
        item = f"{details['prior']}-{details['seed']}"
        rows += [
            {"round": entry["round"], "utility": entry["utility"], "item": item}
            for entry in details["history"]
            if "utility" in entry
        ]
    return Drawn(plot=UTILITY, rows=rows)


def write_page(config: Experiment, evaluations: Sequence[Path], out: Path, users: Part | None = None) -> ReportSummary:
    """Write the report of evaluated priors and seeds; ``users`` says whom it is about."""
    return write_report(
        experiment=config.name,
        title=config.report.title,
        evaluations=evaluations,
        config_text=config.text(),
        out=out,
        users=users,
    )


def headline(summary: ReportSummary) -> dict[str, float]:
    """Return the few numbers of DVC's and MLflow's tables, with their intervals."""
    estimates = {f"{metric}_{linkage}": e for linkage in ("update", "device") for metric, e in _of(summary, linkage)}
    if summary.utility is not None:
        estimates["utility"] = summary.utility
    ends: Mapping[str, float | None] = {
        f"{name}{end}": value
        for name, e in estimates.items()
        for end, value in (("", e.value), ("_lo", e.lo), ("_hi", e.hi))
    }
    return {name: value for name, value in ends.items() if value is not None}


def _of(summary: ReportSummary, linkage: str) -> list[tuple[str, Estimate]]:
    estimates = summary.update if linkage == "update" else summary.device
    return [(metric, estimates[metric]) for metric in ("ap", "ap_over_chance", "top1") if metric in estimates]
