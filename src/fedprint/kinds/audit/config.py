"""An audit of an experiment as a value: the experiment, and how it is audited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from fedprint.audit.run import Setting
from fedprint.component import Component
from fedprint.data.splits import Prior
from fedprint.defences.on_update import DpFedAvg
from fedprint.federation.privacy import private_defence
from fedprint.kinds.base import Request
from fedprint.kinds.config_files import as_yaml, read_yaml
from fedprint.kinds.federation.config import Experiment, ReportConfig
from fedprint.kinds.federation.derived import Seeds, derived, file_settings
from fedprint.kinds.hardware import hardware_for
from fedprint.kinds.requests import file_of, plain_name, refuse_taken, request_for, variant
from fedprint.lab.keys import digest_of
from fedprint.types import FedprintError

MARK = "canaries"
"""The key that only an audit's file has."""


class AuditSetting(Component):
    """How an experiment is audited (:class:`fedprint.audit.run.Setting`; the seed is the job's)."""

    delta: float = Field(gt=0, lt=1)
    canaries: int = Field(ge=10)
    confidence: float = Field(default=0.95, gt=0, lt=1)

    def at(self, seed: int) -> Setting:
        """Return the setting of one audit."""
        return Setting(delta=self.delta, canaries=self.canaries, confidence=self.confidence, seed=seed)


class Audited(Experiment):
    """An experiment that is trained once more, with canaries among its devices."""

    audit: AuditSetting


class AuditConfig(Component):
    """An audit's file: an ``experiment``, what it is changed by, and how it is audited.

    Without a ``delta`` it is that of the experiment's budget, without a ``prior`` the first of the experiment's.
    """

    report: ReportConfig = ReportConfig(title="Audit")
    experiment: str
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    canaries: int = Field(default=1000, ge=10)
    confidence: float = Field(default=0.95, gt=0, lt=1)
    delta: float | None = Field(default=None, gt=0, lt=1)
    prior: Prior | None = None
    seeds: Seeds = (0,)


@dataclass(frozen=True, kw_only=True)
class ExperimentAudit:
    """Audits ready to run, one for each seed."""

    name: str
    config: Audited
    prior: Prior
    seeds: tuple[int, ...]

    @property
    def fast(self) -> bool:
        """Whether the experiment's ``fast`` section was used."""
        return self.config.fast

    def digest(self) -> str:
        """Return a hash of everything that numbers depend on."""
        return digest_of([self.config.digest(), self.prior, list(self.seeds)])

    def text(self) -> str:
        """Return the experiment and how it is audited as YAML."""
        content = {**self.config.model_dump(mode="json"), "seeds": list(self.seeds)}
        content["split"]["priors"] = [self.prior]
        return as_yaml(content)


def audit_of(
    root: Path,
    what: str,
    given: Mapping[str, Any] | None = None,
    *,
    fast: bool = False,
    assignments: Sequence[str] = (),
    name: str | None = None,
) -> Request:
    """Return the request for an audit: of an experiment, or the file of an audit, by name or path.

    ``given`` are values of :class:`AuditConfig` (None: not given). Without a ``name`` the audit of an experiment is
    called ``audit-<experiment>``, and after what differs from the experiment's file and from the defaults here. Raises
    FedprintError as :func:`fedprint.kinds.requests.request_for` does.
    """
    path = file_of(root, what)
    options = {key: value for key, value in (given or {}).items() if value is not None}
    if MARK in read_yaml(path):
        return request_for(root, what, fast=fast, assignments=[*assignments, *_assigned(options)], name=name)
    differing = {key: value for key, value in options.items() if value != AuditConfig.model_fields[key].default}
    changes = [*assignments, *_assigned(differing)]
    named = name or variant(f"audit-{plain_name(root, path)}", fast=fast, assignments=hardware_for(root, changes)[1])
    values = {"report": {"title": f"Audit of {path.stem}"}, "experiment": str(path)}
    values |= {MARK: AuditConfig.model_fields[MARK].default}
    request = replace(request_for(root, what, fast=fast, assignments=changes, name=named), values=values)
    refuse_taken(request)
    return request


def _assigned(values: Mapping[str, Any]) -> list[str]:
    """Return values as ``--set`` takes them."""
    return [f"{key}={list(value) if isinstance(value, tuple) else value}" for key, value in values.items()]


def load_audit(request: Request) -> ExperimentAudit:
    """Resolve an audit. Raises FedprintError for an experiment that cannot be audited, or that names no delta."""
    settings, others = file_settings(request, AuditConfig)
    config = derived(request, settings.experiment, settings.changes, others, settings.report.title)
    auditable(config, Path(settings.experiment).stem)
    setting = AuditSetting(
        delta=delta_of(settings.delta, config, Path(settings.experiment).stem),
        canaries=settings.canaries,
        confidence=settings.confidence,
    )
    prior = settings.prior or config.split.priors[0]
    return ExperimentAudit(name=request.name, config=audited(config, setting), prior=prior, seeds=settings.seeds)


def audited(config: Experiment, setting: AuditSetting) -> Audited:
    """Return the experiment with how it is audited."""
    return Audited.model_validate({**config.model_dump(mode="json"), "audit": setting.model_dump(mode="json")})


def auditable(config: Experiment, called: str | None = None) -> DpFedAvg:
    """Return the mechanism of an experiment that can be audited; FedprintError for others."""
    defence, name = private_defence(config.defences), called or config.name
    if defence is None:
        raise FedprintError(f"audit: '{name}' has no dp-fedavg; --set 'defences=[{{name: dp-fedavg, z: 1}}]'")
    if config.threat.defended != "everyone":
        raise FedprintError("audit: devices of one role are not clipped; --set threat.defended=everyone")
    if others := [other.name for other in config.defences if other is not defence]:
        raise FedprintError(
            f"audit: '{name}' also has {', '.join(others)}, which canaries do not go through; audit it with "
            "dp-fedavg alone"
        )
    return defence


def delta_of(given: float | None, config: Experiment, called: str | None = None) -> float:
    """Return the ``given`` delta, or that of the experiment's budget without one."""
    if given is not None:
        return given
    budget = auditable(config, called).budget
    if budget is None:
        raise FedprintError(f"audit: '{called or config.name}' has no budget.delta; give --delta")
    return budget.delta
