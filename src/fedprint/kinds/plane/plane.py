"""A sweep over the privacy-utility plane: strategies of defence at several strengths and seeds (papers.md 2.6).

A plane is a file in configs/experiments with ``strategies``. Its points are computed in worker processes and cached
(:mod:`fedprint.kinds.plane.points`), so a repeated or killed sweep goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator

from fedprint.audit.run import Setting
from fedprint.component import Component
from fedprint.data.splits import Prior
from fedprint.defences.secure_aggregation import server_view
from fedprint.evaluation.planes import BEST
from fedprint.evaluation.rows import Row
from fedprint.evaluation.tradeoff import Point
from fedprint.federation.privacy import private_defence
from fedprint.kinds.config_files import apply_assignments, experiment_file, merge, one_line, read_yaml
from fedprint.kinds.federation.config import Experiment, ReportConfig, all_differ, check_experiment, names_differ
from fedprint.kinds.plane.point_pool import PointRequest, run_points
from fedprint.kinds.study.config import Seeds, base_experiment, defended, parted
from fedprint.kinds.workspace import workspace_lock
from fedprint.lab.progress import meter
from fedprint.reports.plane import PlaneHead, write_plane
from fedprint.reports.plane_numbers import Entry, headline
from fedprint.tuning.space import filled, placeholders
from fedprint.types import FedprintError

STRENGTH = "strength"
"""The one parameter of a strategy in a sweep: ``alpha: $strength``."""


class SweptStrategy(Component):
    """A way to defend at several ``strengths``, which take the place of ``$strength`` in ``defences``."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    defences: Annotated[tuple[Mapping[str, Any], ...], Field(min_length=1)]
    strengths: Annotated[tuple[float | int, ...], AfterValidator(all_differ), Field(min_length=1)]

    @model_validator(mode="after")
    def _strength_is_used(self) -> SweptStrategy:
        if set(placeholders(self.defences)) != {STRENGTH}:
            raise ValueError(
                f"strategy '{self.name}': write ${STRENGTH} where the strength goes, and no other parameter"
            )
        return self


class AuditConfig(Component):
    """Every place with dp-fedavg and a budget's delta is audited at every seed, by this many ``canaries``."""

    canaries: int = Field(default=500, ge=10)
    confidence: float = Field(default=0.95, gt=0, lt=1)


class PlaneConfig(Component):
    """A sweep's file: the ``experiment`` with what it is changed by, and what defends it at which strengths.

    ``analyses`` run at every place. With ``audit`` the mechanism of every private place is audited.
    """

    report: ReportConfig
    experiment: str
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    prior: Prior = "random"
    seeds: Seeds = (0, 1, 2)
    strategies: Annotated[tuple[SweptStrategy, ...], AfterValidator(names_differ)] = Field(min_length=1)
    analyses: tuple[Mapping[str, Any], ...] = ()
    audit: AuditConfig | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """One strategy at one strength; no strategy is no defence."""

    strategy: str | None
    strength: float | None
    config: Experiment


@dataclass(frozen=True, kw_only=True)
class Plane:
    """A sweep ready to run; the first place has no defence."""

    name: str
    settings: PlaneConfig
    places: tuple[Place, ...]

    @property
    def config(self) -> Experiment:
        """The undefended experiment."""
        return self.places[0].config

    @property
    def requests(self) -> list[PointRequest]:
        """Every place at every seed; seed by seed, so that a stopped sweep has whole planes."""
        return [
            PointRequest(
                config=place.config, prior=self.settings.prior, seed=seed, label=f"{_label(place)} seed {seed}"
            )
            for seed in self.settings.seeds
            for place in self.places
        ]


def load_plane(root: Path, name: str, *, fast: bool = False, assignments: Sequence[str] = ()) -> Plane:
    """Read a sweep and resolve every place.

    ``assignments`` whose first key is one of the sweep's (``seeds=[0]``) change the sweep, others the experiment.
    Raises FedprintError (one line) for settings that do not fit.
    """
    path = experiment_file(root, name)
    own = read_yaml(path)
    quick = own.pop("fast", None) or {}
    mine, others = parted(assignments, PlaneConfig)
    try:
        settings = PlaneConfig.model_validate(apply_assignments(merge(own, quick) if fast else own, mine))
    except ValidationError as error:
        raise FedprintError(one_line(error, str(path), PlaneConfig)) from None
    changed = (settings.experiment, settings.changes)
    config = base_experiment(root, name, changed, (fast, others), settings.report.title)
    config = check_experiment({**config.model_dump(mode="json"), "analyses": list(settings.analyses)}, str(path))
    places = [Place(strategy=None, strength=None, config=config)]
    for strategy in settings.strategies:
        for strength in strategy.strengths:
            defences = [filled(defence, {STRENGTH: strength}) for defence in strategy.defences]
            made = defended(config, defences, f"{name}: {strategy.name} at {strength:g}")
            places.append(Place(strategy=strategy.name, strength=float(strength), config=made))
    plane = Plane(name=name, settings=settings, places=tuple(places))
    _check_audits(plane)
    return plane


def _check_audits(plane: Plane) -> None:
    """Raise FedprintError where a private place cannot be audited: now, and not after all have trained."""
    if plane.settings.audit is None:
        return
    from fedprint.kinds.audit.audit import auditable

    for place in plane.places:
        if _private(place.config):
            auditable(place.config)


def run_plane(root: Path, plane: Plane, jobs: int | None = None) -> Path:
    """Compute all points, ``jobs`` at a time (default: one per core), publish and log the report; return its folder.

    A place whose training diverges is reported as such. Raises FedprintError when the undefended one does.
    """
    with workspace_lock(root, plane.name):
        found = run_points(plane.requests, jobs=jobs or os.cpu_count() or 1, title=plane.name)
        folder = root / "reports" / plane.name
        entries = make_entries(plane, found, audits(plane))
        write_plane(head=head_of(plane, entries), entries=entries, config_text=dump_plane(plane), out=folder)
        _log(root, plane, entries, folder)
        return folder


def audits(plane: Plane) -> dict[str, tuple[Row, ...]]:
    """Return the audits of every private place, a row per seed, by the place's strategy and strength."""
    asked = plane.settings.audit
    private = {} if asked is None else {_label(place): d for place in plane.places if (d := _private(place.config))}
    if not private or asked is None:
        return {}
    from fedprint.kinds.audit.audit import audit_row, cached_audit

    found: dict[str, tuple[Row, ...]] = {}
    with meter(f"{plane.name}: audits", len(private)) as bar:
        for place in plane.places:
            if (delta := private.get(_label(place))) is None:
                continue
            rows = []
            for seed in plane.settings.seeds:
                setting = Setting(delta=delta, canaries=asked.canaries, confidence=asked.confidence, seed=seed)
                made = cached_audit(place.config, plane.settings.prior, setting)
                rows.append(audit_row(place.config, plane.settings.prior, seed, made))
            found[_label(place)] = tuple(rows)
            bar.update(len(found), _label(place))
    return found


def _private(config: Experiment) -> float | None:
    """Return the delta of a configuration's private mechanism, None for one that promises nothing."""
    defence = private_defence(config.defences)
    return defence.budget.delta if defence is not None and defence.z and defence.budget is not None else None


def make_entries(
    plane: Plane, found: Sequence[Point | FedprintError], audited: Mapping[str, tuple[Row, ...]] | None = None
) -> list[Entry]:
    """Return one entry per place, the undefended one first; ``found`` in the order of the plane's requests."""
    count = len(plane.places)
    entries = []
    for position, place in enumerate(plane.places):
        results = found[position::count]
        errors = [result for result in results if isinstance(result, FedprintError)]
        if errors and place.strategy is None:
            raise errors[0]
        points = tuple(result for result in results if isinstance(result, Point))
        reason = f"{len(errors)} of {len(results)} seeds: {errors[0]}" if errors else None
        rows = (audited or {}).get(_label(place), ())
        entries.append(
            Entry(strategy=place.strategy, strength=place.strength, points=points, error=reason, audits=rows)
        )
    return entries


def head_of(plane: Plane, entries: Sequence[Entry]) -> PlaneHead:
    """Return what holds for the whole page."""
    plain = entries[0].points[0]
    attacked = [number for entry in entries for point in entry.points for number in point.attacks]
    return PlaneHead(
        name=plane.name,
        title=plane.settings.report.title,
        dataset=plain.dataset,
        prior=plane.settings.prior,
        seeds=plane.settings.seeds,
        defended=plane.config.threat.defended,
        learn_from=plane.config.threat.learn_from,
        views=tuple(sorted({number.view for number in attacked})),
        adversaries=tuple(sorted({number.adversary for number in attacked}, reverse=True)),
        utility_metric=plain.utility.metric,
        fast=plane.config.fast,
        config_hash=plane.config.digest(),
    )


def dump_plane(plane: Plane) -> str:
    """Return the resolved sweep and its undefended experiment as YAML."""
    content = {
        "sweep": plane.settings.model_dump(mode="json", by_alias=True),
        "experiment": plane.config.model_dump(mode="json"),
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _label(place: Place) -> str:
    return f"{place.strategy} {place.strength:g}" if place.strategy else "no defence"


def _log(root: Path, plane: Plane, entries: Sequence[Entry], folder: Path) -> None:
    """Log one flat run per place, tagged by sweep and strategy, and the report."""
    from fedprint.tracking.runs import log_report, tracked_run

    digest, defended = plane.config.digest(), plane.config.threat.defended
    for place, entry in zip(plane.places, entries, strict=True):
        key = {"sweep": plane.name, "strategy": entry.label, "strength": f"{entry.strength}", "config": digest}
        view = entry.view(BEST) if entry.points else server_view(place.config.defences)
        params = {"strategy": entry.label, "strength": entry.strength, "defended": defended, "view": view}
        name = f"{plane.name} {entry.label}" + (f" {entry.strength:g}" if entry.strength is not None else "")
        with tracked_run(root, "fedprint planes", key, name, params, {"error": entry.error or ""}) as run:
            run.log_metrics([(metric, value, 0) for metric, value in headline(entry, entries[0]).items()])
    log_report(root, plane.name, {"sweep": plane.name, "config": digest}, folder, tags={"fast": plane.config.fast})
