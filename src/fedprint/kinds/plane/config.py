"""A plane as a value: strategies of defence at several strengths and seeds (papers.md 2.6).

A plane is a file in configs/experiments with ``strategies``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fedprint.component import Component
from fedprint.data.splits import Prior
from fedprint.federation.privacy import private_defence
from fedprint.kinds.audit.config import Audited, AuditSetting, auditable, audited
from fedprint.kinds.base import Request
from fedprint.kinds.config_files import as_yaml
from fedprint.kinds.federation.config import Experiment, ReportConfig, all_differ, check_experiment, names_differ
from fedprint.kinds.federation.declared import Part, part_of
from fedprint.kinds.federation.derived import Seeds, defended, file_settings, undefended
from fedprint.kinds.plane.beside import load_beside
from fedprint.lab.keys import digest_of
from fedprint.reports.pages.plane.beside import Beside
from fedprint.tuning.space import filled, placeholders, settings_of

STRENGTH = "strength"
"""The one parameter of a strategy in a plane: ``alpha: $strength``."""


class SweptStrategy(Component):
    """A way to defend at several ``strengths``, which replace ``$strength`` in ``defences``."""

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
    """Every point with dp-fedavg and a budget's delta is audited at every seed, by this many ``canaries``."""

    canaries: int = Field(default=500, ge=10)
    confidence: float = Field(default=0.95, gt=0, lt=1)


class PlaneConfig(Component):
    """A plane's file: the ``experiment`` with its changes, and the strategies with their strengths.

    ``analyses`` run at every point. With ``audit`` the mechanism of every private point is audited. ``beside`` names a
    published run of the same plane on development users: its AP and the difference stand beside the page's numbers.
    """

    report: ReportConfig
    experiment: str
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    prior: Prior = "random"
    seeds: Seeds = (0, 1, 2)
    strategies: Annotated[tuple[SweptStrategy, ...], AfterValidator(names_differ)] = Field(min_length=1)
    analyses: tuple[Mapping[str, Any], ...] = ()
    audit: AuditConfig | None = None
    beside: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


@dataclass(frozen=True, kw_only=True)
class PlanePoint:
    """One strategy at one strength, or no defence. ``settings`` are the strategy's names of its strength."""

    strategy: str | None
    strength: float | None
    config: Experiment
    settings: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Strategy and strength, as progress, failures and runs show them."""
        return f"{self.strategy} {self.strength:g}" if self.strategy else "no defence"

    @property
    def varies(self) -> dict[str, Any]:
        """How it differs from other points: strategy, strength, and the strategy's names of the strength."""
        if self.strategy is None:
            return {"strategy": "no defence"}
        return {"strategy": self.strategy, **dict.fromkeys((STRENGTH, *self.settings), self.strength)}


@dataclass(frozen=True, kw_only=True)
class Plane:
    """A plane ready to run; the first point has no defence. ``users`` says whom it is about (configs/users.yaml)."""

    name: str
    settings: PlaneConfig
    points: tuple[PlanePoint, ...]
    users: Part | None = None
    beside: Beside | None = None

    @property
    def config(self) -> Experiment:
        """The undefended experiment."""
        return self.points[0].config

    @property
    def fast(self) -> bool:
        """Whether its ``fast`` section was used."""
        return self.config.fast

    @property
    def runs(self) -> list[tuple[PlanePoint, int]]:
        """Every point at every seed; seed by seed, so that a stopped run has whole planes."""
        return [(point, seed) for seed in self.settings.seeds for point in self.points]

    @cached_property
    def audits(self) -> list[tuple[PlanePoint, Audited, int]]:
        """Every private point at every seed, with the experiment that is trained once more to audit it."""
        return [(point, config, seed) for point, config in self._audited() for seed in self.settings.seeds]

    def _audited(self) -> Iterator[tuple[PlanePoint, Audited]]:
        asked = self.settings.audit
        for point in self.points if asked is not None else ():
            defence = private_defence(point.config.defences)
            if asked is not None and defence is not None and defence.z and defence.budget is not None:
                auditable(point.config)
                setting = AuditSetting(canaries=asked.canaries, confidence=asked.confidence, delta=defence.budget.delta)
                yield point, audited(point.config, setting)

    def digest(self) -> str:
        """Return a hash of everything that numbers depend on."""
        sweep = self.settings.model_dump(mode="json", exclude={"report", "beside"})
        rows = [self.beside.rows] if self.beside else []
        return digest_of([sweep, self.config.digest(), *rows])

    def text(self) -> str:
        """Return the resolved plane and its undefended experiment as YAML."""
        content = {
            "sweep": self.settings.model_dump(mode="json", by_alias=True, exclude=None if self.beside else {"beside"}),
            "experiment": self.config.model_dump(mode="json"),
        }
        return as_yaml(content)


def load_plane(request: Request) -> Plane:
    """Resolve every point of a plane.

    Assignments whose first key is one of the plane's (``seeds=[0]``) change the plane, others the experiment. Raises
    FedprintError (one line) for settings that do not fit.
    """
    settings, others = file_settings(request, PlaneConfig)
    config = undefended(request, settings.experiment, settings.changes, others, settings.report.title)
    analyses = {"analyses": list(settings.analyses)}
    config = check_experiment({**config.model_dump(mode="json"), **analyses}, str(request.path))
    points = [PlanePoint(strategy=None, strength=None, config=config)]
    for strategy in settings.strategies:
        named = tuple(dict.fromkeys(settings_of(strategy.defences, STRENGTH)))
        for strength in strategy.strengths:
            defences = [filled(defence, {STRENGTH: strength}) for defence in strategy.defences]
            made = defended(config, defences, f"{request.path.stem}: {strategy.name} at {strength:g}")
            points.append(PlanePoint(strategy=strategy.name, strength=float(strength), config=made, settings=named))
    users = part_of(request.root, config.data)
    beside = load_beside(request.root, settings.beside, config.data, users) if settings.beside else None
    plane = Plane(name=request.name, settings=settings, points=tuple(points), users=users, beside=beside)
    _ = plane.audits  # raises now for a point that cannot be audited, and not after all have trained
    return plane
