"""A study as a value: configs/studies/<name>.yaml in, frozen and checked configuration out.

Its mark is ``ceiling``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fedprint.component import Component
from fedprint.data.splits import Prior
from fedprint.kinds.base import Request
from fedprint.kinds.config_files import as_yaml, merge
from fedprint.kinds.federation.config import Experiment, ReportConfig, check_experiment, names_differ
from fedprint.kinds.federation.derived import Seeds, defended, file_settings, undefended
from fedprint.kinds.federation.jobs import canonical
from fedprint.lab.keys import digest_of, source_digest
from fedprint.tuning.sampling import SamplerName
from fedprint.tuning.space import Strategy, Values
from fedprint.tuning.storage import without_password
from fedprint.types import FedprintError, Linkage

SEARCH = ("tuning", "kinds/study/points.py", "kinds/study/search.py")
"""The code that proposes, scores and judges trials."""


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
    """A study's file. Results depend on everything here but ``timeout_minutes`` and the storage.

    ``with`` changes the experiment, ``search`` changes it further for all seeds but the fresh ones: what trials are
    scored on, where that must not be what the result is measured on. Every trial runs the ``seeds``; ``margin_seeds``
    at the centre of a strategy's space tell how much AP varies (:func:`fedprint.tuning.score.margin_of`); the result is
    measured on ``fresh_seeds``, at most ``candidates`` times per strategy. ``storage`` is the path of a journal file or
    a database URL, by default work/studies/<file>.log, which variants share.
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

    Trials are kept under the name of its ``file``, so that variants which search alike share them.
    """

    name: str
    file: str
    settings: StudyConfig
    config: Experiment
    searched: Experiment

    @property
    def fast(self) -> bool:
        """Whether its ``fast`` section was used."""
        return self.config.fast

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
        origin = f"{self.file}: {strategy.name} at {dict(values)}"
        base = merge(self.undefended(seed).model_dump(mode="json"), strategy.changed(values))
        return defended(check_experiment(base, origin), strategy.filled(values), origin)

    def trials_digest(self, strategy: Strategy, code: str) -> str:
        """Return 8 hex digits of all that a trial's values depend on; ``code`` identifies the data and a point's code.

        The code of the search counts too: trials judged by different margins must not mix.
        """
        kept = self.settings.model_dump(mode="json", include={"prior", "ceiling", "seeds", "margin_seeds", "seed"})
        kept |= {"fresh": len(self.settings.fresh_seeds), "sampler": self.settings.sampler, "code": code}
        kept["search"] = source_digest(SEARCH)
        searched = canonical(self.searched, self.settings.prior, self.settings.seeds[0])
        return digest_of([kept, strategy.model_dump(mode="json"), searched.digest()])[:8]

    def digest(self) -> str:
        """Return a hash of everything that numbers depend on."""
        settings = self.settings.model_dump(mode="json", exclude={"report", "timeout_minutes", "storage"})
        return digest_of([settings, self.config.digest()])

    def text(self) -> str:
        """Return the study and its experiment as YAML, without the password of its storage: pages are shared."""
        settings = self.settings
        if settings.storage is not None:
            settings = settings.model_copy(update={"storage": without_password(settings.storage)})
        content = {
            "study": settings.model_dump(mode="json", by_alias=True),
            "experiment": self.config.model_dump(mode="json"),
        }
        return as_yaml(content)


def load_study(request: Request) -> Study:
    """Resolve a study and the experiment it is about.

    Assignments whose first key is one of the study's (``trials=10``, ``strategies.0.space.alpha.high=4``) change the
    study, all others the experiment. ``request.strategies`` names the strategies to search, by default all of them; a
    strategy's trials do not depend on its neighbours. Raises FedprintError (one line) for what does not fit.
    """
    settings, others = file_settings(request, StudyConfig)
    settings = _only(settings, request.strategies)
    config, searched = (
        undefended(request, settings.experiment, changes, others, settings.report.title)
        for changes in (settings.changes, merge(settings.changes, settings.search))
    )
    if settings.ceiling.linkage not in config.selection.linkages:
        raise FedprintError(
            f"{request.path.stem}: ceiling.linkage: '{settings.ceiling.linkage}' is not measured; selection.linkages "
            f"has {list(config.selection.linkages)}: add it there"
        )
    study = Study(name=request.name, file=request.path.stem, settings=settings, config=config, searched=searched)
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
