"""The kind of experiment that bounds epsilon from below: a training once more, with canaries among the devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedprint.audit.run import bound_of_runs
from fedprint.data.formats.files import read_json
from fedprint.kinds.audit.config import MARK, ExperimentAudit, load_audit
from fedprint.kinds.audit.graph import audit_job
from fedprint.kinds.audit.results import FILE, as_values, audit_from, audit_row, verdict
from fedprint.kinds.base import Costs, Findings, OnOneSource, Request
from fedprint.kinds.federation.tracked import parameters
from fedprint.kinds.jobs import all_done
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.runs import DataUse, Run, RunHead
from fedprint.reports.pages.audit import AuditHead, write_audit

EXPERIMENT = "fedprint audits"


class AuditKind(OnOneSource):
    """Audits of one experiment, one for each seed."""

    name = "audit"
    mark = MARK

    def load(self, request: Request) -> ExperimentAudit:
        """Return the audits of a file, or of an experiment (:func:`fedprint.kinds.audit.config.audit_of`)."""
        return load_audit(request)

    def jobs(self, config: ExperimentAudit) -> Sequence[Job]:
        """Return one job for each seed."""
        return [audit_job(config.config, config.prior, seed, label=f"seed {seed}") for seed in config.seeds]

    def carry_out(self, config: ExperimentAudit, lab: Lab, out: Path) -> Findings:
        """Audit at every seed and write the report; a failed audit fails the experiment.

        An accounted epsilon that does not hold counts as a failure of its job, so that the exit code is 1.
        """
        jobs = self.jobs(config)
        done = all_done([job.label for job in jobs], lab.run(jobs, title=config.name))
        audits = [audit_from(read_json(one.outputs["audit"] / FILE)) for one in done]
        rows = [audit_row(config.config, config.prior, one.job.seed, f) for one, f in zip(done, audits, strict=True)]
        reported = [{**as_values(one), "holds": one.holds, "verdict": verdict(one)} for one in audits]
        pooled = bound_of_runs(audits)
        write_audit(head=_head(config), audits=reported, pooled=pooled, rows=rows, config_text=config.text(), out=out)
        metrics = {"epsilon_lower": max(one.bound for one in audits)}
        tight = {"epsilon_lower_tight": max((one.tight for one in audits if one.tight is not None), default=None)}
        tight["epsilon_lower_runs"] = pooled
        metrics |= {name: value for name, value in tight.items() if value is not None}
        accounted = [one.accounted.value for one in audits if as_values(one)["accounted"]["value"] is not None]
        metrics |= {"epsilon_accounted": max(accounted)} if accounted else {}
        return Findings(
            metrics=metrics,
            done=done,
            failures={one.job.label: verdict(f) for one, f in zip(done, audits, strict=True) if not f.holds},
            data=(_data(config, done[0].job),),
        )

    def costs(self, config: ExperimentAudit, device: str) -> Costs:
        """Return the costs, about those of the experiment's federations, of which nothing is recorded."""
        from fedprint.kinds.federation.plan import costs_of  # late: it brings Lightning, which only a dry run needs

        seeds = config.config.model_copy(update={"seeds": config.seeds})
        split = config.config.split.model_copy(update={"priors": (config.prior,)})
        return costs_of(seeds.model_copy(update={"split": split}), device, attacked=False)

    def head(self, config: ExperimentAudit, job: Job) -> RunHead:
        """Return the head of the MLflow run of an audit."""
        return RunHead(
            experiment=EXPERIMENT,
            key={"audit": config.name, "seed": str(job.seed), "config": job.config.digest()},
            name=f"{config.name} {job.label}",
            params={**parameters(config.config), "prior": job.prior, "seed": job.seed},
            tags={"fast": config.fast},
            data=(_data(config, job),),
            group=config.name,
            description=config.config.report.title,
        )

    def log(self, config: ExperimentAudit, done: Done, run: Run) -> None:
        """Track both epsilons and what the bound rests on."""
        log_audit(done, run)


def _head(config: ExperimentAudit) -> AuditHead:
    return AuditHead(
        name=config.name,
        title=config.config.report.title,
        dataset=config.config.data.name,
        prior=config.prior,
        seeds=tuple(config.seeds),
        fast=config.fast,
        config_hash=config.digest(),
    )


def _data(config: ExperimentAudit, job: Job) -> DataUse:
    return DataUse(name=config.config.data.name, digest=job.data)


def log_audit(done: Done, run: Run) -> None:
    """Track both epsilons and what the bound rests on."""
    audit = audit_from(read_json(done.outputs["audit"] / FILE))
    numbers = {"epsilon_lower": audit.bound, "epsilon_accounted": audit.accounted.value}
    numbers |= {} if audit.tight is None else {"epsilon_lower_tight": audit.tight}
    counts = {"rounds": audit.rounds, "canaries": audit.canaries, "guesses": audit.guesses, "correct": audit.correct}
    points = {**{f"privacy/{name}": value for name, value in numbers.items()}, **counts}
    run.log_metrics([(name, float(value), 0) for name, value in points.items()])
    run.set_tags({"holds": audit.holds, "verdict": verdict(audit), "delta": audit.accounted.delta})
    run.log_artifacts(done.outputs["audit"])
