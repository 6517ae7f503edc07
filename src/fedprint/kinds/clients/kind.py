"""The kind of experiment that partitions the same images among more and more clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedprint.errors import FedprintError
from fedprint.evaluation.rows import Row
from fedprint.kinds.base import Costs, Drawn, Findings, OnOneSource, Request
from fedprint.kinds.clients.config import ClientsConfig, ClientsExperiment, SweepSettings
from fedprint.kinds.clients.graph import CLIENTS_WORK
from fedprint.kinds.clients.page import head_of
from fedprint.kinds.clients.plan import costs_of
from fedprint.kinds.clients.rows import accuracy, rows_of
from fedprint.kinds.images import image_job, images_use, loaded, log_model, read_hits, read_losses
from fedprint.kinds.jobs import crashed, points_of, reason_of
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.origin import flat
from fedprint.lab.tracking.runs import DataUse, Point, Run, RunHead
from fedprint.lab.versions.dvc_yaml import Plot
from fedprint.reports.numbers.clients import accuracies, final
from fedprint.reports.pages.clients import write_clients


class ClientsKind(OnOneSource):
    """Accuracy by the number of clients, for several methods."""

    name = "clients"
    mark = "methods"

    def load(self, request: Request) -> ClientsExperiment:
        """Return the experiment of a file."""
        return ClientsExperiment.of(request, ClientsConfig)

    def jobs(self, config: ClientsExperiment) -> Sequence[Job]:
        """Return one job for each federation."""
        return [image_job(CLIENTS_WORK, one, one.data, one.seed, one.label) for one in config.federations]

    def carry_out(self, config: ClientsExperiment, lab: Lab, out: Path) -> Findings:
        """Train every federation and write the report; a method that diverges is a result, not a failure.

        Raises FedprintError where all failed.
        """
        jobs = self.jobs(config)
        ended = lab.run(jobs, title=config.name)
        hits = [one if isinstance(one, FedprintError) else read_hits(one.outputs["hits"]) for one in ended]
        rows = rows_of(config, hits, _classes(config))
        if not rows:
            raise next(one for one in ended if isinstance(one, FedprintError))
        labels = [job.label for job in jobs]
        named = zip(labels, ended, strict=True)
        failures = {label: reason_of(one) for label, one in named if isinstance(one, FedprintError)}
        write_clients(head=head_of(config, failures), rows=rows, config_text=config.text(), out=out)
        shown = accuracies(final(rows))
        return Findings(
            metrics=_headline(shown),
            points=[point for row in shown for point in _points(row)],
            done=[one for one in ended if isinstance(one, Done)],
            failures=crashed(zip(labels, ended, strict=True)),
            data=(data_use(config, jobs[0].data),),
            plots=(_plot(shown),),
        )

    def costs(self, config: ClientsExperiment, device: str) -> Costs:
        """Return the costs of all federations, from one client's training."""
        return costs_of(config, device)

    def head(self, config: ClientsExperiment, job: Job) -> RunHead:
        """Return the head of the MLflow run of a job."""
        whole = dict(flat(config.config.model_dump(mode="json")))
        return RunHead(
            experiment="fedprint",
            key={"experiment": config.name, "job": job.label, "config": config.digest()},
            name=f"{config.name} {job.label}",
            params={**whole, **_keys(settings_of(job)), "config_hash": config.digest()},
            tags={"fast": config.fast, "kind": self.name},
            data=(data_use(config, job.data),),
            group=config.name,
            description=config.config.report.title,
        )

    def log(self, config: ClientsExperiment, done: Done, run: Run) -> None:
        """Track the results of a finished job."""
        settings, data = settings_of(done.job), data_use(config, done.job.data)
        model = log_model(run, done.outputs["model"], settings.network.name, data)
        keys = {"method": settings.method.name, "clients": settings.clients}
        measured = accuracy(read_hits(done.outputs["hits"]), 1 / _classes(config), keys)
        points = [*read_losses(done.outputs["hits"]), *points_of("utility/accuracy", measured)]
        run.log_metrics(points, model=model, data=data)
        run.set_tags({"config_hash": config.digest()})


def settings_of(job: Job) -> SweepSettings:
    """Return the settings of a job of this kind."""
    assert isinstance(job.config, SweepSettings), job.label
    return job.config


def data_use(config: ClientsExperiment, digest: str) -> DataUse:
    """Return which images a sweep uses."""
    data = config.config.data
    return images_use(data, loaded(data, config.config.seeds[0]), digest)


def _classes(config: ClientsExperiment) -> int:
    return len(loaded(config.config.data, config.config.seeds[0]).class_names)


def _keys(settings: SweepSettings) -> dict[str, object]:
    """Return the keys in which a federation differs from the others of its sweep."""
    return {
        "method": settings.method.name,
        "defence": settings.method.defence,
        "clients": settings.clients,
        "partition": settings.partition.name,
        "seed": settings.seed,
    }


def _headline(rows: Sequence[Row]) -> dict[str, float]:
    """Return the accuracies among most clients, with intervals."""
    most = max(int(row["clients"]) for row in rows)
    ends = (("", "value"), ("_lo", "lo"), ("_hi", "hi"))
    return {
        f"accuracy_{row['partition']}_{row['method']}{end}": float(row[key])
        for row in rows
        if row["clients"] == most
        for end, key in ends
    }


def _points(row: Row) -> list[Point]:
    name, step = f"accuracy/{row['partition']}/{row['method']}", int(row["clients"])
    return [(f"{name}{end}", float(row[key]), step) for end, key in (("", "value"), ("_lo", "lo"), ("_hi", "hi"))]


def _plot(shown: Sequence[Row]) -> Drawn:
    """Return accuracy by the number of clients."""
    rows = [
        {"clients": row["clients"], "accuracy": row["value"], "method": f"{row['partition']} {row['method']}"}
        for row in shown
    ]
    title = "Accuracy by the number of clients"
    return Drawn(plot=Plot(file="accuracy.csv", template="scatter", x="clients", y="accuracy", title=title), rows=rows)
