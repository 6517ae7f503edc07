"""The kind of experiment that sweeps the privacy-utility plane: one point per strategy, strength and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedprint.data.formats.files import read_json
from fedprint.data.sources.registry import label_of
from fedprint.evaluation.rows import Row
from fedprint.evaluation.tradeoffs.planes import STRONGEST
from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.kinds.audit.graph import AUDIT_WORK, audit_job
from fedprint.kinds.audit.kind import log_audit
from fedprint.kinds.audit.results import FILE, audit_from, audit_row
from fedprint.kinds.base import Costs, Drawn, Findings, OnOneSource, Request
from fedprint.kinds.federation.jobs import point_job
from fedprint.kinds.federation.points import log_point, point_head, points_of
from fedprint.kinds.federation.tracked import data_use
from fedprint.kinds.jobs import failure_text
from fedprint.kinds.plane.config import Plane, PlanePoint, load_plane
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, JobFailed, Lab
from fedprint.lab.tracking.runs import Run, RunHead
from fedprint.lab.versions.dvc_yaml import Plot
from fedprint.reports.numbers.plane import Entry, headline
from fedprint.reports.pages.plane.page import PlaneHead, write_plane
from fedprint.types import FedprintError

EXPERIMENT = "fedprint planes"


class PlaneKind(OnOneSource):
    """Strategies at several strengths and seeds, beside no defence."""

    name = "plane"
    mark = "strategies"

    def load(self, request: Request) -> Plane:
        """Return the plane of a file."""
        return load_plane(request)

    def jobs(self, config: Plane) -> Sequence[Job]:
        """Return one job per point, and one per audit."""
        return [*point_jobs(config), *audit_jobs(config)]

    def carry_out(self, config: Plane, lab: Lab, out: Path) -> Findings:
        """Compute all points and audits, and write one page about them.

        A point whose training diverges is reported as such. Raises FedprintError when the undefended one does.
        """
        jobs = self.jobs(config)
        ended = lab.run(jobs, title=config.name)
        count = len(config.runs)
        entries = make_entries(config, points_of(ended[:count]), audit_rows(config, ended[count:]))
        head = head_of(config, entries)
        write_plane(head=head, entries=entries, config_text=config.text(), out=out, beside=config.beside)
        done = [one for one in ended if isinstance(one, Done)]
        details = read_json(done[0].outputs["point"] / "details.json")
        return Findings(
            metrics=metrics_of(entries),
            done=done,
            failures=failures_of(jobs, ended, count),
            data=(data_use(details),),
            plots=(_plane_plot(entries),),
            compared=("utility", "ap_update", "ap_device"),
            reads=(config.beside.name,) if config.beside and config.beside.rows else (),
            users=config.users,
        )

    def costs(self, config: Plane, device: str) -> Costs:
        """Return the costs of points and audits; an audit trains as its point does, and records nothing."""
        from fedprint.kinds.federation.plan import costs_of_points  # late: it brings Lightning, for dry runs alone

        points = [(point.config, len(config.settings.seeds)) for point in config.points]
        return costs_of_points(points, device, audits=[audit for _, audit, _ in config.audits])

    def head(self, config: Plane, job: Job) -> RunHead:
        """Return the head of the MLflow run of a point or an audit."""
        return point_head(EXPERIMENT, config.config, job)

    def log(self, config: Plane, done: Done, run: Run) -> None:
        """Track the results of a point or an audit."""
        if done.job.work is AUDIT_WORK:
            log_audit(done, run)
        else:
            log_point(config.config, done, run)


def point_jobs(plane: Plane) -> list[Job]:
    """Return one job per point and seed, in the order of the plane's runs."""
    return [
        point_job(point.config, plane.settings.prior, seed, label=f"{point.label} seed {seed}", varies=point.varies)
        for point, seed in plane.runs
    ]


def audit_jobs(plane: Plane) -> list[Job]:
    """Return one job per private point and seed, in the order of the plane's audits."""
    return [
        audit_job(config, plane.settings.prior, seed, label=f"{point.label} audit seed {seed}", varies=point.varies)
        for point, config, seed in plane.audits
    ]


def audit_rows(plane: Plane, ended: Sequence[Done | FedprintError]) -> dict[str, tuple[Row, ...]]:
    """Return the audits of every private point, a row per seed, by the point's label."""
    rows: dict[str, tuple[Row, ...]] = {}
    for (point, config, seed), one in zip(plane.audits, ended, strict=True):
        if isinstance(one, Done):
            audit = audit_from(read_json(one.outputs["audit"] / FILE))
            rows[point.label] = (*rows.get(point.label, ()), audit_row(config, plane.settings.prior, seed, audit))
    return rows


def make_entries(
    plane: Plane, results: Sequence[Point | FedprintError], audited: Mapping[str, tuple[Row, ...]] | None = None
) -> list[Entry]:
    """Return one entry per point, the undefended one first; ``results`` in the order of the plane's runs."""
    count = len(plane.points)
    return [
        _entry(point, results[position::count], (audited or {}).get(point.label, ()))
        for position, point in enumerate(plane.points)
    ]


def _entry(point: PlanePoint, results: Sequence[Point | FedprintError], audits: tuple[Row, ...]) -> Entry:
    errors = [result for result in results if isinstance(result, FedprintError)]
    if errors and point.strategy is None:
        raise errors[0]
    first = getattr(errors[0], "reason", errors[0]) if errors else None
    return Entry(
        strategy=point.strategy,
        strength=point.strength,
        points=tuple(result for result in results if isinstance(result, Point)),
        error=f"{len(errors)} of {len(results)} seeds: {first}" if errors else None,
        audits=audits,
    )


def failures_of(jobs: Sequence[Job], ended: Sequence[Done | FedprintError], count: int) -> dict[str, str]:
    """Return the failed jobs, but for those of the first ``count`` (points) that diverged: these are results."""
    return {
        job.label: failure_text(job.label, one)
        for number, (job, one) in enumerate(zip(jobs, ended, strict=True))
        if isinstance(one, FedprintError) and (number >= count or not diverged(one))
    }


def diverged(error: FedprintError) -> bool:
    """Return whether a stage stopped for a stated reason, as where training diverges; it did not crash."""
    return not isinstance(error, JobFailed) or error.exit_code != 1


def metrics_of(entries: Sequence[Entry]) -> dict[str, float]:
    """Return the few numbers of every point that compare from run to run; no times."""
    return {
        f"{entry.name}/{name.replace('/', '_')}": value
        for entry in entries
        for name, value in headline(entry, entries[0]).items()
        if not name.startswith("overhead/")
    }


def _plane_plot(entries: Sequence[Entry]) -> Drawn:
    """Return the plane: the strongest adversary's AP over chance, and normalised utility."""
    rows = [
        {
            "strategy": entry.label,
            "strength": entry.strength,
            "ap_over_chance": entry.over_chance(STRONGEST)["value"],
            "utility": entry.utility(entries[0])["value"],
        }
        for entry in entries
        if entry.points
    ]
    title = "Utility, normalised to no defence, by the strongest adversary's AP over chance"
    plot = Plot(file="plane.csv", template="scatter", x="ap_over_chance", y="utility", title=title)
    return Drawn(plot=plot, rows=rows)


def head_of(plane: Plane, entries: Sequence[Entry]) -> PlaneHead:
    """Return the facts about the whole plane."""
    plain = entries[0].points[0]
    attacked = [number for entry in entries for point in entry.points for number in point.attacks]
    return PlaneHead(
        name=plane.name,
        title=plane.config.report.title,
        dataset=label_of(plane.config.data),  # rows call every folder "folder"
        prior=plane.settings.prior,
        seeds=plane.settings.seeds,
        defended=plane.config.threat.defended,
        learn_from=plane.config.threat.learn_from,
        views=tuple(sorted({number.view for number in attacked})),
        adversaries=tuple(sorted({number.adversary for number in attacked}, reverse=True)),
        utility_metric=plain.utility.metric,
        fast=plane.fast,
        config_hash=plane.config.digest(),
        users=plane.users,
    )
