"""A study as a value: configs/studies/<name>.yaml in, frozen and checked configuration out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from fedprint.component import Component
from fedprint.data.splits import Prior
from fedprint.kinds.config_files import apply_assignments, experiment_file, merge, one_line, read_yaml
from fedprint.kinds.federation.config import (
    Experiment,
    ReportConfig,
    all_differ,
    check_experiment,
    names_differ,
    resolved_values,
)
from fedprint.kinds.plane.point_keys import source_digest
from fedprint.tuning.sampling import SamplerName
from fedprint.tuning.space import Strategy, Values
from fedprint.types import FedprintError, Linkage

_COMPARED: Mapping[str, Any] = {"threat": {"learn_from": "offline"}}
"""What sweeps and studies set beneath all files: against no defence the adversary learns as it does against one.

From a few recorded updates of its own it would do worse there, and every defence would look good.
"""

_SEARCH = ("src/fedprint/tuning", "src/fedprint/pipeline/tune.py")
"""The code that proposes, scores and judges trials."""

Seeds = Annotated[tuple[int, ...], AfterValidator(all_differ), Field(min_length=1)]


class Ceiling(Component):
    """The most that the strongest adversary's AP may be: ``ap`` (a fraction), or ``times_chance``.

    ``linkage`` says whether that AP is of single updates or, as pseudonyms persist, of all updates of a device as one.
    """

    linkage: Linkage = "update"
    ap: float | None = Field(default=None, gt=0, le=1)
    times_chance: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_of_two(self) -> Ceiling:
        if (self.ap is None) == (self.times_chance is None):
            raise ValueError("give either ap or times_chance")
        return self

    def of(self, chance: float) -> float:
        """Return the ceiling as an AP where random scores reach ``chance``."""
        return self.ap if self.ap is not None else (self.times_chance or 0.0) * chance


class StudyConfig(Component):
    """A study's file. Results depend on everything here but ``workers``, ``timeout_minutes`` and the storage.

    ``with`` changes the experiment, ``search`` changes it further for all seeds but the fresh ones: what trials are
    scored on, where that must not be what the result is measured on. Every trial runs the ``seeds``; ``margin_seeds``
    at the centre of a strategy's space tell how much AP varies (:func:`fedprint.tuning.score.margin_of`); the result is
    measured on ``fresh_seeds``, at most ``candidates`` times per strategy. ``storage`` is the path of a journal file or
    a database URL, by default work/studies/<name>.log.
    """

    report: ReportConfig
    experiment: str
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    search: Mapping[str, Any] = Field(default_factory=dict)
    prior: Prior = "random"
    ceiling: Ceiling
    strategies: Annotated[tuple[Strategy, ...], AfterValidator(names_differ)] = Field(min_length=1)
    trials: int = Field(default=25, ge=1)
    timeout_minutes: float | None = Field(default=None, gt=0)
    seeds: Seeds = (0,)
    margin_seeds: Seeds = (0, 1, 2, 3, 4, 5)
    fresh_seeds: Seeds = (1000, 1001, 1002)
    candidates: int = Field(default=3, ge=1)
    sampler: SamplerName = "auto"
    seed: int = 0
    workers: int | None = Field(default=None, ge=1)
    storage: str | None = None

    @model_validator(mode="after")
    def _fresh_is_fresh(self) -> StudyConfig:
        used = set(self.fresh_seeds) & {*self.seeds, *self.margin_seeds}
        if used:
            raise ValueError(f"fresh_seeds: {sorted(used)} are searched on too; choose other seeds")
        if len(self.margin_seeds) < 2:
            raise ValueError(f"margin_seeds: {list(self.margin_seeds)} show no spread; give at least 2")
        return self


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study ready to run: ``config`` is the undefended experiment on fresh seeds, ``searched`` that of the search.

    ``only`` names strategies that were asked for.
    """

    name: str
    settings: StudyConfig
    config: Experiment
    searched: Experiment
    only: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name of the report: neither a part of the strategies nor a quick try replaces the report of the whole."""
        return "-".join([self.name, *self.only, *(["fast"] if self.config.fast else [])])

    @property
    def points(self) -> list[tuple[Experiment, int]]:
        """How many points there are at most: undefended ones, and of each strategy, at the middle of its space."""
        s = self.settings
        each = s.trials * len(s.seeds) + len(s.margin_seeds) + s.candidates * len(s.fresh_seeds)
        middles = [self.defended(strategy, strategy.centre(), s.seeds[0]) for strategy in s.strategies]
        return [(self.config, len(s.seeds) + len(s.fresh_seeds)), *((config, each) for config in middles)]

    def undefended(self, seed: int) -> Experiment:
        """Return the experiment that a seed runs without a defence."""
        return self.config if seed in self.settings.fresh_seeds else self.searched

    def defended(self, strategy: Strategy, values: Values, seed: int) -> Experiment:
        """Return what a seed runs under a strategy at ``values``, rounded. FedprintError for impossible ones."""
        values = strategy.rounded(values)
        origin = f"{self.name}: {strategy.name} at {dict(values)}"
        base = merge(self.undefended(seed).model_dump(mode="json"), strategy.changed(values))
        return defended(check_experiment(base, origin), strategy.filled(values), origin)

    def digest(self, strategy: Strategy, code: str) -> str:
        """Return 8 hex digits of all that a trial's values depend on; ``code`` identifies the data and a point's code.

        The code of the search counts too: trials judged by different margins must not mix.
        """
        kept = self.settings.model_dump(mode="json", include={"prior", "ceiling", "seeds", "margin_seeds", "seed"})
        kept |= {"fresh": len(self.settings.fresh_seeds), "sampler": self.settings.sampler, "code": code}
        kept["search"] = source_digest(_SEARCH)
        text = json.dumps([kept, strategy.model_dump(mode="json"), self.searched.digest()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def load_study(
    root: Path, name: str, *, fast: bool = False, assignments: Sequence[str] = (), only: Sequence[str] = ()
) -> Study:
    """Read configs/studies/<name>.yaml and the experiment it is about.

    ``assignments`` whose first key is one of the study's (``trials=10``, ``strategies.0.space.alpha.high=4``) change
    the study, all others the experiment. ``only`` names the strategies to search, by default all of them; a strategy's
    trials do not depend on its neighbours. Raises FedprintError (one line) for what does not fit.
    """
    path = study_file(root, name)
    own = read_yaml(path)
    quick = own.pop("fast", None) or {}
    mine, others = parted(assignments, StudyConfig)
    values = apply_assignments(merge(own, quick) if fast else own, mine)
    try:
        settings = _only(StudyConfig.model_validate(values), only)
    except ValidationError as error:
        raise FedprintError(one_line(error, str(path), StudyConfig)) from None
    both = (settings.changes, merge(settings.changes, settings.search))
    config, searched = (
        base_experiment(root, name, (settings.experiment, changes), (fast, others), settings.report.title)
        for changes in both
    )
    if settings.ceiling.linkage not in config.selection.linkages:
        raise FedprintError(
            f"{name}: ceiling.linkage: '{settings.ceiling.linkage}' is not measured; selection.linkages has "
            f"{list(config.selection.linkages)}: add it there"
        )
    study = Study(
        name=name,
        settings=settings,
        config=config,
        searched=searched,
        only=tuple(strategy.name for strategy in settings.strategies if only),
    )
    for strategy in settings.strategies:
        for end in ("low", "high"):
            ends = {key: getattr(p, end) for key, p in strategy.space.items()}
            values = {key: int(v) if strategy.space[key].integer else v for key, v in ends.items()}
            for seed in (settings.seeds[0], settings.fresh_seeds[0]):
                study.defended(strategy, values, seed)
    return study


def _only(settings: StudyConfig, names: Sequence[str]) -> StudyConfig:
    known = {strategy.name: strategy for strategy in settings.strategies}
    if unknown := [name for name in names if name not in known]:
        raise FedprintError(f"unknown strategy '{unknown[0]}'; choose among {', '.join(known)}")
    chosen = tuple(strategy for name, strategy in known.items() if not names or name in names)
    return settings.model_copy(update={"strategies": chosen})


def study_file(root: Path, name: str) -> Path:
    """Return the YAML file of a study."""
    folder = root / "configs" / "studies"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in folder.glob("*.yaml"))) or "none yet"
        raise FedprintError(f"unknown study '{name}' ({path} does not exist); choose one of {known}")
    return path


def defended(config: Experiment, defences: Sequence[Mapping[str, Any]], origin: str) -> Experiment:
    """Return the experiment under ``defences``; ``origin`` is named in the one-line error."""
    return check_experiment({**config.model_dump(mode="json"), "defences": list(defences)}, origin)


def base_experiment(
    root: Path, name: str, changed: tuple[str, Mapping[str, Any]], line: tuple[bool, Sequence[str]], title: str
) -> Experiment:
    """Return the undefended experiment ``changed`` (its name and what it is merged with) under a new ``name``.

    ``line`` are --fast and assignments. The experiment's own ``fast`` section comes before what it is merged with. Its
    defences and analyses are left out: strategies defend, and a point needs no analysis. Where none of these says
    otherwise, ``threat.learn_from`` is ``offline``.
    """
    experiment, changes = changed
    fast, assignments = line
    _check_left_alone(name, [*changes, *(text.partition("=")[0] for text in assignments)])
    own = read_yaml(experiment_file(root, experiment))
    if "data" not in own:
        raise FedprintError(f"{name}: '{experiment}' is no single experiment; name one that is")
    quick = own.pop("fast", None) or {}
    own = merge(_COMPARED, merge(own, quick) if fast else own)
    values = resolved_values(root, merge(own, changes), False, assignments)
    content = {**values, "name": name, "fast": fast, "defences": [], "analyses": [], "report": {"title": title}}
    return check_experiment(content, f"{name}: experiment {experiment}")


def _check_left_alone(name: str, keys: Sequence[str]) -> None:
    """Refuse what would be left out without a word."""
    reasons = {
        "defences": "strategies defend; write defences into one of them",
        "analyses": "a study has none, a sweep has them beside its strategies",
    }
    for key in keys:
        if reason := reasons.get(key.split(".")[0]):
            raise FedprintError(f"{name}: {key}: {reason}")


def parted(assignments: Sequence[str], own: type[BaseModel]) -> tuple[list[str], list[str]]:
    """Return the assignments to the settings of ``own``, by their first key, and all others."""
    keys = {field.alias or name for name, field in own.model_fields.items()}
    mine = [text for text in assignments if text.partition("=")[0].split(".")[0] in keys]
    return mine, [text for text in assignments if text not in mine]
