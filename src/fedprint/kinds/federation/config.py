"""An experiment as a value: YAML in, frozen and checked configuration out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator

from fedprint.accounting.accountants import accountant_named, refused_sampling
from fedprint.accounting.events import Sampling
from fedprint.component import Component
from fedprint.data.sources.registry import AnySource
from fedprint.data.splits import Prior
from fedprint.defences.on_data import MmAug
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.schedules import Constant, Schedule
from fedprint.defences.secret_head import secret_head
from fedprint.defences.secure_aggregation import secure_aggregation
from fedprint.federation.cohorts import refused_correlated, refused_in_turn
from fedprint.kinds.base import Request
from fedprint.kinds.components import Analysis, Attack, Defence
from fedprint.kinds.config_files import (
    apply_assignments,
    merge,
    one_line,
    read_yaml,
)
from fedprint.kinds.hardware import read_settings
from fedprint.kinds.jobs import file_values, title_of
from fedprint.models.components import Model
from fedprint.types import (
    AdversaryName,
    Aggregation,
    FedprintError,
    Linkage,
    LocalOptimiser,
    LocalTraining,
    Precision,
    Role,
    UpdateDefence,
)

_NUMBER = "(:[1-9][0-9]*)?"
BACKENDS = rf"^(auto|(ray{_NUMBER}:)?(sequential|vectorised{_NUMBER})|(threaded|ray){_NUMBER})$"
"""What may train clients (federation/backends.py)."""

Entries = TypeVar("Entries", bound=tuple[object, ...])


def all_differ(entries: Entries) -> Entries:
    """Return the entries, which must differ (for pydantic)."""
    if len(set(entries)) < len(entries):
        raise ValueError("entries must differ")
    return entries


class Named(Protocol):
    """A part of a configuration with a name of its own."""

    @property
    def name(self) -> str:
        """Name in tables."""


Parts = TypeVar("Parts", bound=tuple[Named, ...])


def names_differ(parts: Parts) -> Parts:
    """Return the parts, whose names must differ (for pydantic)."""
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise ValueError(f"names must differ, got {names}")
    return parts


class SplitConfig(Component):
    """Who holds what: priors to evaluate, the share of test data, of prior data, and limits on a device's examples.

    Users with fewer than ``min_albums`` albums take no part, under any prior (photoset needs two of every user).
    """

    priors: Annotated[tuple[Prior, ...], AfterValidator(all_differ)] = Field(
        default=("random", "chrono", "iid"), min_length=1
    )
    test_fraction: float = Field(default=0.2, gt=0, lt=1)
    prior_fraction: float = Field(default=0.5, gt=0, lt=1)
    max_prior_examples: int | None = Field(default=None, ge=1)
    max_private_examples: int | None = Field(default=None, ge=1)
    min_albums: int = Field(default=1, ge=1)


class FederationConfig(Component):
    """FedAvg's constants (papers.md, section 1). ``fraction`` is C, ``batch_size`` examples per batch, ``lr`` eta.

    ``optimiser`` is what a client steps with, anew in every round: sgd, momentum (.9) or adam (papers.md 4.5).

    ``aggregation``: the mean weighted by examples (fedavg), the plain mean, or the clients in turn (round-robin).
    ``sampling`` fixed draws a cohort of M = C K, poisson takes each device with probability C; ``growth`` multiplies M
    over training, ``lr_schedule`` eta. ``absent`` is the share of users whose anonymous device never takes part, so
    that membership can be asked about. ``momentum`` is the server's. ``diagnostics`` adds V_c and U_s to the history
    (papers.md, section 3). ``precision`` rounds the factors of products in local training: tf32 (NVIDIA GPUs) and bf16
    are faster there and change every update a little (benchmarks/RESULTS.md has what that does to an attack).
    """

    rounds: int = Field(default=100, ge=1, le=100_000)
    fraction: float = Field(default=0.1, gt=0, le=1)
    epochs: int = Field(default=1, ge=1)
    batch_size: int = Field(default=10, ge=1)
    lr: float = Field(default=0.01, gt=0)
    optimiser: LocalOptimiser = "sgd"
    aggregation: Aggregation = "fedavg"
    sampling: Sampling = "fixed"
    growth: Schedule = Constant()
    lr_schedule: Schedule = Constant()
    absent: float = Field(default=0.0, ge=0, lt=1)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    diagnostics: bool = False
    backend: str = Field(default="auto", pattern=BACKENDS)
    dtype: Literal["float32", "float64"] = "float32"
    precision: Precision = "full"
    evaluate_every: int = Field(default=10, ge=1)
    central_epochs: int = Field(default=5, ge=0)
    central_lr: float = Field(default=0.1, gt=0)

    @model_validator(mode="after")
    def _rounds_float32_only(self) -> FederationConfig:
        if self.precision != "full" and self.dtype != "float32":
            raise ValueError(f"precision {self.precision} rounds products of float32; use it with dtype: float32")
        return self

    def device_count(self, users: int) -> int:
        """Return K, how many devices ``users`` bring: two each, for both halves of their data, but the absent ones."""
        return 2 * users - round(self.absent * users)

    def local_training(self) -> LocalTraining:
        """What a client does in one round, before ``lr_schedule``."""
        return LocalTraining(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            optimiser=self.optimiser,
            precision=self.precision,
        )

    def training_by_round(self) -> tuple[LocalTraining, ...]:
        """What a client does in each round (rounds,)."""
        factors = (self.lr_schedule.factor(t, self.rounds) for t in range(self.rounds))
        return tuple(replace(self.local_training(), lr=self.lr * factor) for factor in factors)


class StoreConfig(Component):
    """Which layers are recorded (``all``, or names and prefixes) and how exactly."""

    layers: Literal["all"] | tuple[str, ...] = "all"
    precision: Literal["float16", "float32", "float64"] = "float16"


class SelectionConfig(Component):
    """How the adversary validates: number of recorded global models at which halves of the prior are trained."""

    shadow_rounds: int = Field(default=8, ge=2)
    linkages: Annotated[tuple[Linkage, ...], AfterValidator(all_differ)] = Field(
        default=("update", "device"), min_length=1
    )


class ThreatConfig(Component):
    """Whose devices are defended: everyone's, or those of anonymous users alone.

    In the papers the adversary's own devices take part in the federation undefended: that is ``anonymous``.

    ``adversaries`` attack where there are defences, or where everybody learns off line: the naive one that does not
    know of defences and the adaptive one that does; the last is the one of the headlines. They train their prior users'
    data off line: clean from ``shadow_rounds * (1 + shadow_draws)`` recorded global models, and from ``shadow_rounds``
    of them ``shadow_draws`` times with a defence of its own draw.

    Where the adversary's own devices took part undefended, it learns from their recorded updates, as in the papers;
    with ``learn_from: offline`` it trains off line there too, so that numbers with and without defences compare.
    """

    defended: Literal["everyone", "anonymous"] = "everyone"
    adversaries: Annotated[tuple[AdversaryName, ...], AfterValidator(all_differ)] = Field(
        default=("naive", "adaptive"), min_length=1
    )
    learn_from: Literal["records", "offline"] = "records"
    shadow_rounds: int = Field(default=10, ge=1)
    shadow_draws: int = Field(default=2, ge=1)

    def defended_roles(self) -> tuple[Role, ...]:
        """The roles whose devices are defended."""
        return ("anonymous", "prior") if self.defended == "everyone" else ("anonymous",)


class EvaluationConfig(Component):
    """Intervals and checks. ``round_bins`` cuts training for the AP-by-round figure."""

    confidence: float = Field(default=0.95, gt=0, lt=1)
    resamples: int = Field(default=2000, ge=200)
    permutations: int = Field(default=9999, ge=99)
    round_bins: int = Field(default=10, ge=1)
    shown_users: int = Field(default=12, ge=1)


class ReportConfig(Component):
    """What the page is called."""

    title: str


class Experiment(Component):
    """Everything an experiment is; equal configurations give equal results."""

    name: str
    data: AnySource
    split: SplitConfig = SplitConfig()
    model: Model
    federation: FederationConfig = FederationConfig()
    store: StoreConfig = StoreConfig()
    defences: tuple[Defence, ...] = ()
    threat: ThreatConfig = ThreatConfig()
    attacks: tuple[Attack, ...] = Field(min_length=1)
    analyses: tuple[Analysis, ...] = ()
    selection: SelectionConfig = SelectionConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    report: ReportConfig
    seeds: Annotated[tuple[int, ...], AfterValidator(all_differ)] = Field(default=(0,), min_length=1)
    fast: bool = False

    @model_validator(mode="after")
    def _parts_have_their_own_names(self) -> Experiment:
        for section, parts in (("attacks", self.attacks), ("analyses", self.analyses)):
            names = [part.name for part in parts]
            if len(set(names)) < len(names):
                raise ValueError(f"{section}: names must differ, got {names}")
        return self

    def text(self) -> str:
        """Return the resolved configuration as YAML."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def digest(self) -> str:
        """Return 12 hex digits that identify the configuration, but for the wording of the report."""
        return _hash(self.model_dump(mode="json", exclude={"report"}))

    @property
    def adversaries(self) -> tuple[AdversaryName, ...]:
        """Who attacks, the one of the headlines last.

        Without a defence there is nothing to know. But where numbers with and without defences compare, as everybody
        learns off line, both attack both: the adaptive adversary has more ways to learn even there.
        """
        return self.threat.adversaries if self.defences or self.threat.learn_from == "offline" else ("naive",)

    @model_validator(mode="after")
    def _one_clustering(self) -> Experiment:
        clusterings = {(d.clusters, d.features, d.weights) for d in self.defences if isinstance(d, MmAug)}
        if len(clusterings) > 1:
            raise ValueError("defences: all mm-aug of an experiment share one clustering; give them the same clusters")
        return self

    @model_validator(mode="after")
    def _secret_head_has_classes(self) -> Experiment:
        if secret_head(self.defences) and not {"single_label", "multi_label"} & set(self.model.tasks):
            raise ValueError(
                f"defences: spn needs classes with a code each, which '{self.model.name}' has not (a next-word model "
                "would need a code per word of a text, a regression has no classes); choose an image classifier"
            )
        return self

    @model_validator(mode="after")
    def _one_private_mechanism(self) -> Experiment:
        on_update = [d for d in self.defences if isinstance(d, UpdateDefence)]
        private = [d for d in on_update if isinstance(d, DpFedAvg)]
        if len(private) > 1:
            raise ValueError("defences: one dp-fedavg is enough; give it all the noise")
        if private and private[0].z and on_update[-1] != private[0]:
            raise ValueError("defences: dp-fedavg goes last, as what follows it would undo its clipping")
        f = self.federation
        if refused := (
            refused_in_turn(f.aggregation, f.sampling, f.momentum, private)
            or refused_correlated(f.sampling, f.growth, private)
        ):
            raise ValueError(refused)
        counting = private[0].budget.accountant if private and private[0].budget else None
        if counting and (refused := refused_sampling(accountant_named(counting), f.sampling)):
            raise ValueError(f"defences.dp-fedavg.budget: {refused}")
        return self

    @model_validator(mode="after")
    def _sums_are_of_a_round(self) -> Experiment:
        if secure_aggregation(self.defences) and self.federation.aggregation == "round-robin":
            raise ValueError(
                "defences: secure-aggregation hides updates in a round's sum, and round-robin takes none; "
                "use aggregation: mean"
            )
        return self

    def analyses_under(self, prior: Prior) -> tuple[Analysis, ...]:
        """Return the analyses that run under a prior."""
        return tuple(one for one in self.analyses if one.priors is None or prior in one.priors)

    def section_digest(self, *sections: str) -> str:
        """Return 12 hex digits of some sections (``a``) or settings (``a.b``).

        Which priors run beside one another is no part of any section.
        """
        whole = self.model_dump(mode="json", exclude={"split": {"priors"}})
        return _hash({key: reduce(getitem, key.split("."), whole) for key in sections})


def _hash(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def load_experiment(request: Request) -> Experiment:
    """Merge shared defaults, the experiment's file, its ``fast`` section where asked, and ``a.b=c`` assignments.

    Lists are replaced, mappings merged, and a mapping with another ``name`` replaces the default component. Raises
    FedprintError naming file, key, value and what is allowed.
    """
    values = resolved_values(request.root, request.values, request.fast, request.assignments)
    named = {**values, "name": request.name, "fast": request.fast}
    config = check_experiment(named, str(request.path), request.assignments)
    title = title_of(request, config.report.title, file_values(request), config.data)
    return config.model_copy(update={"report": ReportConfig(title=title)})


def resolved_values(root: Path, settings: Mapping[str, Any], fast: bool, assignments: Sequence[str]) -> dict[str, Any]:
    """Merge shared defaults, an experiment's settings, their ``fast`` section where asked, and assignments."""
    quick = settings.get("fast") or {}
    values = merge(
        read_settings(root / "configs" / "defaults.yaml"), {k: v for k, v in settings.items() if k != "fast"}
    )
    return apply_assignments(merge(values, quick) if fast else values, assignments)


def check_experiment(values: Mapping[str, Any], origin: str, assignments: Sequence[str] = ()) -> Experiment:
    """Validate a merged mapping; ``origin``, or the assignment at fault, is named in the one-line error."""
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise FedprintError(one_line(error, origin, Experiment, assignments)) from None


def read_resolved(path: Path) -> Experiment:
    """Return the experiment of a resolved config.yaml."""
    return check_experiment(read_yaml(path), str(path))
