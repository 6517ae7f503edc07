"""An experiment as a value: YAML in, frozen and checked configuration out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from fedprint.accounting.events import Sampling
from fedprint.component import Component
from fedprint.data.splits import Prior
from fedprint.defences.on_data import MmAug
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.schedules import Constant, Schedule
from fedprint.defences.secret_head import secret_head
from fedprint.federation.cohorts import refused_in_turn
from fedprint.pipeline.registry import Analysis, Attack, Defence, Model, Source
from fedprint.types import AdversaryName, Aggregation, FedprintError, Linkage, LocalTraining, Role, UpdateDefence

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
    """Who holds what: priors to evaluate, the share of test data, of prior data, and a limit on prior examples.

    Users with fewer than ``min_albums`` albums take no part, under any prior (photoset needs two of every user).
    """

    priors: Annotated[tuple[Prior, ...], AfterValidator(all_differ)] = Field(
        default=("random", "chrono", "iid"), min_length=1
    )
    test_fraction: float = Field(default=0.2, gt=0, lt=1)
    prior_fraction: float = Field(default=0.5, gt=0, lt=1)
    max_prior_examples: int | None = Field(default=None, ge=1)
    min_albums: int = Field(default=1, ge=1)


class FederationConfig(Component):
    """FedAvg's constants (papers.md, section 1). ``fraction`` is C, ``batch_size`` examples per batch, ``lr`` eta.

    ``aggregation``: the mean weighted by examples (fedavg), the plain mean, or the clients in turn (round-robin).
    ``sampling`` fixed draws a cohort of M = C K, poisson takes each device with probability C; ``growth`` multiplies M
    over training. ``momentum`` is the server's. ``diagnostics`` adds V_c and U_s to the history (papers.md, section 3).
    """

    rounds: int = Field(default=100, ge=1)
    fraction: float = Field(default=0.1, gt=0, le=1)
    epochs: int = Field(default=1, ge=1)
    batch_size: int = Field(default=10, ge=1)
    lr: float = Field(default=0.01, gt=0)
    aggregation: Aggregation = "fedavg"
    sampling: Sampling = "fixed"
    growth: Schedule = Constant()
    momentum: float = Field(default=0.0, ge=0, lt=1)
    diagnostics: bool = False
    backend: str = Field(default="auto", pattern=r"^(auto|sequential|(threaded|vectorised)(:[1-9][0-9]*)?)$")
    dtype: Literal["float32", "float64"] = "float32"
    evaluate_every: int = Field(default=10, ge=1)
    central_epochs: int = Field(default=5, ge=0)
    central_lr: float = Field(default=0.1, gt=0)

    def local_training(self) -> LocalTraining:
        """What a client does in one round."""
        return LocalTraining(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)


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

    ``adversaries`` attack where there are defences, the naive one that does not know of them and the adaptive one that
    does; the last is the one of the headlines. They train their prior users' data off line from ``shadow_rounds``
    recorded global models; ``shadow_draws`` devices with a defence of their own draw stand beside each clean one.

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
    data: Source
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

    def digest(self) -> str:
        """Return 12 hex digits that identify the configuration, but for the wording of the report."""
        return _hash(self.model_dump(mode="json", exclude={"report"}))

    @property
    def adversaries(self) -> tuple[AdversaryName, ...]:
        """Who attacks, the one of the headlines last; without a defence there is nothing to know."""
        return self.threat.adversaries if self.defences else ("naive",)

    @model_validator(mode="after")
    def _one_clustering(self) -> Experiment:
        found = {(d.clusters, d.features, d.weights) for d in self.defences if isinstance(d, MmAug)}
        if len(found) > 1:
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
        if refused := refused_in_turn(f.aggregation, f.sampling, f.momentum, private):
            raise ValueError(refused)
        return self

    def section_digest(self, *sections: str) -> str:
        """Return 12 hex digits of some sections (``a``) or settings (``a.b``).

        Which priors run beside one another is no part of any section.
        """
        whole = self.model_dump(mode="json", exclude={"split": {"priors"}})
        return _hash({key: reduce(getitem, key.split("."), whole) for key in sections})


def _hash(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def experiment_file(root: Path, name: str) -> Path:
    """Return the YAML file of an experiment: a name in configs/experiments, or a path to a file."""
    folder = root / "configs" / "experiments"
    path = folder / f"{name}.yaml"
    if path.is_file():
        return path
    known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
    raise FedprintError(f"unknown experiment '{name}' ({path} does not exist); choose one of {known}")


def is_suite(root: Path, name: str) -> bool:
    """Return whether an experiment's file lists members (pipeline/suite.py)."""
    return "members" in read_yaml(experiment_file(root, name))


def is_plane(root: Path, name: str) -> bool:
    """Return whether an experiment's file lists strategies of defence (pipeline/plane.py)."""
    return "strategies" in read_yaml(experiment_file(root, name))


def load_experiment(root: Path, name: str, *, fast: bool = False, assignments: Sequence[str] = ()) -> Experiment:
    """Merge shared defaults, the experiment's file, its ``fast`` section where asked, and ``a.b=c`` assignments.

    Lists are replaced, mappings merged, and a mapping with another ``name`` replaces the default component. Raises
    FedprintError naming file, key, value and what is allowed.
    """
    path = experiment_file(root, name)
    own = read_yaml(path)
    if "members" in own:
        raise FedprintError(f"{path}: '{name}' is a suite of experiments and none itself; name one of its members")
    if "strategies" in own:
        raise FedprintError(
            f"{path}: '{name}' is a sweep over defences and no single experiment; see `experiment` in it"
        )
    values = resolved_values(root, own, fast, assignments)
    return check_experiment({**values, "name": name, "fast": fast}, str(path))


def resolved_values(root: Path, own: Mapping[str, Any], fast: bool, assignments: Sequence[str]) -> dict[str, Any]:
    """Merge shared defaults, an experiment's ``own`` settings, their ``fast`` section where asked, and assignments."""
    quick = own.get("fast") or {}
    values = merge(read_yaml(root / "configs" / "defaults.yaml"), {k: v for k, v in own.items() if k != "fast"})
    return apply_assignments(merge(values, quick) if fast else values, assignments)


def apply_assignments(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Apply ``a.b=c`` assignments (c is YAML) one after another; a number in the path indexes a list."""
    out = dict(values)
    for assignment in assignments:
        out = _assign(out, assignment)
    return out


def check_experiment(values: Mapping[str, Any], origin: str) -> Experiment:
    """Validate a merged mapping; ``origin`` is named in the one-line error."""
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise FedprintError(one_line(error, origin, Experiment)) from None


def read_resolved(path: Path) -> Experiment:
    """Return the experiment of a resolved config.yaml."""
    return check_experiment(read_yaml(path), str(path))


def dump_yaml(experiment: Experiment) -> str:
    """Return the resolved configuration as YAML."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` overridden by ``over``, mappings merged key by key unless their ``name`` differs."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        together = isinstance(old, Mapping) and isinstance(value, Mapping)
        if together and value.get("name", old.get("name")) == old.get("name"):  # type: ignore[union-attr]
            out[key] = merge(old, value)  # type: ignore[arg-type]
        else:
            out[key] = value
    return out


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML file that holds a mapping; anything else is a FedprintError."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise FedprintError(f"{path}: not a readable YAML file ({' '.join(str(error).split())}); mend it") from None
    if not isinstance(values, dict):
        raise FedprintError(
            f"{path}: holds {type(values).__name__}, not a mapping of settings; see configs/experiments"
        )
    return values


def _assign(values: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    """Apply ``a.b=c`` (c is YAML); a number in the path indexes a list: ``attacks.0.k=5``."""
    key, equals, text = assignment.partition("=")
    if not equals or not key:
        raise FedprintError(f"--set {assignment}: write KEY=VALUE, for example --set federation.rounds=20")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise FedprintError(f"--set {assignment}: '{text}' is not YAML; quote it") from None
    return dict(_with(values, key.split("."), value, assignment))


def _with(node: Any, path: Sequence[str], value: Any, assignment: str) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node, list | tuple):
        if not head.isdigit() or int(head) >= len(node):
            raise FedprintError(
                f"--set {assignment}: '{head}' does not index a list of {len(node)}; use 0 to {len(node) - 1}"
            )
        items = list(node)
        items[int(head)] = _with(items[int(head)], rest, value, assignment)
        return items
    if node is not None and not isinstance(node, Mapping):
        raise FedprintError(f"--set {assignment}: '{head}' is below a plain value {node!r}; shorten the key")
    inner = dict(node or {})
    inner[head] = _with(inner.get(head), rest, value, assignment)
    return inner


_PLAIN = ("constrained-float", "float", "int", "str")
"""pydantic's names of alternatives that are plain values."""


def one_line(error: ValidationError, origin: str, whole: type[BaseModel]) -> str:
    """Say in one line what is wrong first with the values of a ``whole``, where, and which keys there are."""
    first, *others = _alternatives_joined(error.errors(include_url=False))
    keys, classes = _place(first["loc"], whole)
    given = first.get("input")
    shown = "" if isinstance(given, Mapping) else f" (got {given!r})"
    allowed = ""
    if first["type"] == "extra_forbidden":
        known = [(name, field) for found in classes for name, field in found.model_fields.items()]
        fields = dict.fromkeys(field.alias or name for name, field in known)
        allowed = f"; allowed keys: {', '.join(fields)}" if fields else "; remove this key"
    more = f"; and {len(others)} more" if others else ""
    return " ".join(f"{origin}: {'.'.join(keys) or '(whole file)'}: {first['msg']}{shown}{allowed}{more}".split())


def _alternatives_joined(errors: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Return one error per value: of "a number, or a list of numbers" the one about the form that was given."""
    kept: dict[str, ErrorDetails] = {}
    for error in errors:
        place = [str(part) for part in error["loc"]]
        field = next((i for i, part in enumerate(place) if "[" in part or part in _PLAIN), len(place))
        key = ".".join(place[:field])
        known = kept.get(key)
        if known is None or isinstance(known.get("input"), list | tuple):
            kept[key] = error
    return list(kept.values())


def _place(location: Sequence[int | str], whole: type[BaseModel]) -> tuple[list[str], list[type[BaseModel]]]:
    """Return the keys as the file has them, without pydantic's union tags, and the classes that own the last one."""
    keys: list[str] = []
    owners: list[type[BaseModel]] = []
    classes: list[type[BaseModel]] = [whole]
    for part in location:
        tagged = [c for c in classes if "name" in c.model_fields and c.model_fields["name"].default == part]
        if tagged:
            classes = tagged
            continue
        if isinstance(part, str) and keys and not classes:
            continue  # the name of one alternative of a plain value
        keys.append(str(part))
        if isinstance(part, str):
            owners = classes
            inner = [c.model_fields[part].annotation for c in classes if part in c.model_fields]
            classes = [member for annotation in inner for member in _members(annotation)]
    return keys, owners


def _members(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _members(argument)
