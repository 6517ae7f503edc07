"""A study as a value: configs/studies/<name>.yaml in, frozen and checked configuration out.

Its mark is ``ceiling``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fedprint.attacks.reidentification.linked import LINKED
from fedprint.component import Component
from fedprint.data.splits import Prior
from fedprint.kinds.base import Request
from fedprint.kinds.config_files import as_yaml, merge
from fedprint.kinds.federation.config import Experiment, ReportConfig, check_experiment, names_differ
from fedprint.kinds.federation.declared import FILE, development_users, part_of
from fedprint.kinds.federation.derived import Seeds, defended, file_settings, undefended
from fedprint.kinds.federation.jobs import canonical
from fedprint.lab.keys import digest_of, source_digest
from fedprint.tuning.sampling import SamplerName
from fedprint.tuning.space import Strategy, Values
from fedprint.tuning.storage import without_password
from fedprint.types import FedprintError

SEARCH = ("tuning", "kinds/study/points.py", "kinds/study/search.py")
"""The code that proposes, scores and judges trials."""


class Ceiling(Component):
    """The most that the strongest adversary's AP may be: ``ap`` (a fraction), or ``times_chance``.

    That AP is over ``updates`` linked updates of a device: a pseudonym persists, and a device may send many.
    """

    updates: int = 30
    ap: float | None = Field(default=None, gt=0, le=1)
    times_chance: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _is_measured(self) -> Ceiling:
        if self.updates not in LINKED:
            raise ValueError(f"updates: AP over {self.updates} linked updates is not measured; choose of {LINKED}")
        return self

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
    scored on, where that must not be what the result is measured on. Every trial runs the ``seeds``. The
    first candidate is measured on ``fresh_seeds``, each further one on as many seeds after these. ``storage`` is the
    path of a journal file or a database URL, by default work/studies/<file>.log, which variants share.
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
    fresh_seeds: Seeds = (1000, 1001, 1002, 1003, 1004)
    sampler: SamplerName = "auto"
    seed: int = 0
    storage: str | None = None

    @model_validator(mode="after")
    def _fresh_is_fresh(self) -> StudyConfig:
        searched = max(self.seeds)
        if used := sorted(seed for seed in self.fresh_seeds if seed <= searched):
            raise ValueError(f"fresh_seeds: {used} are not above {searched}, which is searched on; choose higher ones")
        return self


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study ready to run: ``config`` is the undefended experiment on fresh seeds, ``searched`` that of the search.

    ``confirmation`` is that of ``config`` with confirmation users, None where none are declared. Trials are kept under
    the name of its ``file``, so that variants which search alike share them.
    """

    name: str
    file: str
    settings: StudyConfig
    config: Experiment
    searched: Experiment
    confirmation: Experiment | None = None

    @property
    def fast(self) -> bool:
        """Whether its ``fast`` section was used."""
        return self.config.fast

    @property
    def points(self) -> list[tuple[Experiment, int]]:
        """How many points there are at most: undefended ones, and of each strategy, at the middle of its space."""
        s = self.settings
        afresh = len(s.fresh_seeds) * (1 if self.confirmation is None else 2)
        each = s.trials * len(s.seeds) + afresh
        middles = [self.defended(strategy, strategy.centre(), s.seeds[0]) for strategy in s.strategies]
        return [(self.config, len(s.seeds) + afresh), *((config, each) for config in middles)]

    def fresh(self, turn: int) -> Seeds:
        """Return the seeds of a strategy's candidate, 0 for the first."""
        seeds = self.settings.fresh_seeds
        return tuple(seed + turn * (max(seeds) - min(seeds) + 1) for seed in seeds)

    def is_fresh(self, seed: int) -> bool:
        """Return whether a seed is one of a candidate's."""
        return seed >= min(self.settings.fresh_seeds)

    def undefended(self, seed: int, *, confirm: bool = False) -> Experiment:
        """Return the experiment that a seed runs without a defence, where asked with confirmation users."""
        if confirm:
            assert self.confirmation is not None
            return self.confirmation
        return self.config if self.is_fresh(seed) else self.searched

    def defended(self, strategy: Strategy, values: Values, seed: int, *, confirm: bool = False) -> Experiment:
        """Return what a seed runs under a strategy at ``values``, rounded. FedprintError for impossible ones."""
        values = strategy.rounded(values)
        origin = f"{self.file}: {strategy.name} at {dict(values)}"
        base = merge(self.undefended(seed, confirm=confirm).model_dump(mode="json"), strategy.changed(values))
        return defended(check_experiment(base, origin), strategy.filled(values), origin)

    def trials_digest(self, strategy: Strategy, code: str) -> str:
        """Return 8 hex digits of all that a trial's values depend on; ``code`` identifies the data and a point's code.

        The code of the search counts too: trials judged in different ways must not mix.
        """
        kept = self.settings.model_dump(mode="json", include={"prior", "ceiling", "seeds", "seed"})
        kept |= {"fresh": len(self.settings.fresh_seeds), "sampler": self.settings.sampler, "code": code}
        kept["search"] = source_digest(SEARCH)
        searched = canonical(self.searched, self.settings.prior, self.settings.seeds[0])
        return digest_of([kept, strategy.model_dump(mode="json"), searched.digest()])[:8]

    def digest(self) -> str:
        """Return a hash of everything that numbers depend on."""
        settings = self.settings.model_dump(mode="json", exclude={"report", "timeout_minutes", "storage"})
        confirmed = self.confirmation and self.confirmation.digest()
        return digest_of([settings, self.config.digest(), confirmed])

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
    _refuse_unmeasured(request.path.stem, settings.ceiling, config)
    study = Study(
        name=request.name,
        file=request.path.stem,
        settings=settings,
        config=config,
        searched=searched,
        confirmation=_confirmation(request, config),
    )
    for strategy in settings.strategies:
        for end in ("low", "high"):
            ends = {key: getattr(p, end) for key, p in strategy.space.items()}
            values = {key: int(v) if strategy.space[key].integer else v for key, v in ends.items()}
            for seed in (settings.seeds[0], settings.fresh_seeds[0]):
                study.defended(strategy, values, seed)
    return study


def _refuse_unmeasured(origin: str, ceiling: Ceiling, config: Experiment) -> None:
    """Raise FedprintError where no AP over so many linked updates can be measured."""
    if ceiling.updates == 1:
        return
    if "device" not in config.selection.linkages:
        raise FedprintError(
            f"{origin}: ceiling.updates: {ceiling.updates} linked updates need 'device' in selection.linkages, which "
            f"has {list(config.selection.linkages)}: add it there"
        )
    if config.federation.rounds < ceiling.updates:
        raise FedprintError(
            f"{origin}: ceiling.updates: a device sends at most {config.federation.rounds} updates "
            f"(federation.rounds), and the ceiling is on {ceiling.updates}; raise the one or lower the other"
        )


def _confirmation(request: Request, config: Experiment) -> Experiment | None:
    """Return the experiment with as many users after those for development; None where none are declared.

    Raises FedprintError where the study would choose on confirmation users.
    """
    count = development_users(request.root, config.data)
    if count is None:
        return None
    if part_of(request.root, config.data) != "development":
        raise FedprintError(
            f"{request.path.stem}: data: a study chooses on development users, the first {count} ({FILE}); lower "
            "data.users and data.skip, or declare more there"
        )
    data = config.data.model_copy(update={"skip": count})
    return config.model_copy(update={"data": data})


def _only(settings: StudyConfig, names: Sequence[str]) -> StudyConfig:
    known = {strategy.name: strategy for strategy in settings.strategies}
    if unknown := [name for name in names if name not in known]:
        raise FedprintError(f"unknown strategy '{unknown[0]}'; choose among {', '.join(known)}")
    chosen = tuple(strategy for name, strategy in known.items() if not names or name in names)
    return settings.model_copy(update={"strategies": chosen})
