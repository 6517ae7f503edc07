"""Adversaries who know that updates are defended, and adversaries who do not (papers.md 5.1).

Where devices are defended, the adversary makes its own examples of updates: it trains its prior users' data off line,
from the recorded global models. The *naive* one trains as if nobody were defended. The *adaptive* one knows the
defences' public parameters, not their randomness; it may attack as the naive one does, or learn from clean devices,
from defended ones (each with a draw of its own), or from both, with settings for defended updates. It asks all of these
ways together, and trusts each as far as it goes on prior data alone: one half of each prior learns, the other half,
defended like an anonymous device, is asked for. Naive and adaptive share the clean devices, which train once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedprint.attacks.adversary.shadow_devices import ShadowDevice, rows_of, spread_rounds
from fedprint.attacks.adversary.shadow_validation import (
    CLEAN,
    DEFENDED,
    NUISANCE,
    SUMMED,
    DevicePlan,
    ShadowTable,
    half_priors,
    train_plan,
    undefended,
    validation_ap,
    validation_folds,
    validation_scores,
    whole_priors,
    with_sums,
)
from fedprint.attacks.denoise import Denoise
from fedprint.attacks.problem import NO_MODE, Problem, Validation, attack_problem
from fedprint.attacks.reidentification.reidentify import Attack, Ridge, Workspace, tune
from fedprint.attacks.updates import Joined, Recorded
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import concat
from fedprint.defences.on_data import CLUSTER, MmAug
from fedprint.defences.secret_head import SecretHead
from fedprint.rng import torch_rng
from fedprint.types import AdversaryName, DataDefence, FedprintError, Ints, Questions

Progress = Callable[[int], None]

MIXES: Mapping[str, tuple[int, ...]] = {"clean": (CLEAN,), "defended": (DEFENDED,), "both": (CLEAN, DEFENDED)}
"""What the adaptive adversary may learn from, with settings of its own: once by log-loss, which rewards who is sure of
nothing where updates are hidden well, and once by AP, a matter of luck where users are few."""
NAIVE = "as naive"
"""Beside them: what the naive adversary learns from, with the naive one's settings, for the very same answers."""

TRUST = 4
"""Power of a way's AP in rehearsals that is its weight (docs/adr/0007)."""

NUISANCE_ROUNDS, NUISANCE_SETS, NUISANCE_USERS = 2, 40, 100
"""Global models from which devices with nothing but background are trained, and how many where it has no clusters: at
most so many that hold a background user's data, or, of few users, so many that hold random examples."""


@dataclass(frozen=True, kw_only=True)
class TrainingMix:
    """A way to learn: the real problem, and rehearsals of it whose answers the adversary knows.

    Attacks are tuned on ``folds``. Recipes are compared there too, or where ``compared`` has any, on those problems.
    """

    name: str
    problem: Problem
    folds: tuple[Validation, ...]
    compared: tuple[Validation, ...] = ()

    @property
    def comparison(self) -> tuple[Validation, ...]:
        """The problems on which recipes are compared."""
        return self.compared or self.folds

    def ap(self, work: Workspace, rng: torch.Generator) -> float:
        """Return the users' mean AP by ridge in the rehearsals."""
        told = validation_scores(Ridge(), self.comparison, tune(Ridge(), self.folds, work, rng), work, rng)
        return float(np.nanmean(validation_ap(told, self.comparison)))

    def without(self, how: Denoise) -> TrainingMix:
        """Return the recipe that first takes out of updates what background examples put into them."""
        folds = tuple(replace(fold, problem=replace(fold.problem, denoise=how)) for fold in self.folds)
        return TrainingMix(name=f"{self.name}, {how}", problem=replace(self.problem, denoise=how), folds=folds)

    def by_ap(self) -> TrainingMix:
        """Return the recipe with settings that are chosen by AP."""
        folds = tuple(replace(fold, by="ap") for fold in self.folds)
        return replace(self, name=f"{self.name}, by AP", folds=folds)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is trained off line.

    From ``clean_rounds`` recorded global models every prior trains clean (0: only halves are needed), and from
    ``defended_rounds`` of these ``draws`` times with a defence; its halves train from ``validation_rounds``, clean and
    ``draws`` times with a defence.
    """

    clean_rounds: int
    defended_rounds: int
    draws: int
    validation_rounds: int

    def devices(self, view: AttackerView) -> int:
        """Return how many devices :func:`run_off_line` trains, at most."""
        background = sum(1 for _ in _nuisance(view))
        return len(view.prior_users) * (self.whole(view.store.rounds) + self.halves(view.store.rounds)) + background

    def whole(self, recorded: int) -> int:
        """Return how many devices a whole prior trains, of a store with ``recorded`` rounds."""
        return min(self.clean_rounds, recorded) + self.draws * min(self.defended_rounds, self.clean_rounds, recorded)

    def halves(self, recorded: int) -> int:
        """Return how many devices the halves of a prior train, of a store with ``recorded`` rounds."""
        return min(self.validation_rounds, recorded) * (1 + self.draws)

    def passes(self, rounds: int, growth: float) -> float:
        """Return how many times the examples of a prior are trained on, of a store with ``rounds`` rounds.

        A defended device trains on ``growth`` times the data; 0 says that it trains on the same as the clean one, which
        trains once for both.
        """
        clean, halves = min(self.clean_rounds, rounds), min(self.validation_rounds, rounds) / 2
        return clean + halves + growth * (self.whole(rounds) - clean + self.draws * halves)


@dataclass(frozen=True, kw_only=True)
class AttackTable:
    """Real problems, all on one ``table``: learn from kinds of devices, name the sender of every anonymous update.

    The table has the updates ``made`` off line, the recorded ones of ``own`` devices (clean ones too), the anonymous.
    All adversaries ask on it, so inner products of its rows serve them all.
    """

    table: Joined
    made: ShadowTable
    own: Ints
    anonymous: int
    options: int

    @classmethod
    def of(cls, view: AttackerView, questions: Questions, made: ShadowTable, *, recorded: bool) -> AttackTable:
        """Join what was made to the records; ``recorded`` as in :class:`OffLine`."""
        own = view.prior_labels(questions) if recorded else np.zeros(0, dtype=np.int64)
        rows = np.concatenate([view.prior_rows[: len(own)], view.anonymous_rows])
        table = Joined(first=made.updates, second=Recorded(store=view.store, rows=rows))
        options = len(questions.options)
        return cls(table=table, made=made, own=own, anonymous=len(view.anonymous_rows), options=options)

    def problem(self, kinds: Sequence[int]) -> Problem:
        """Return the problem that learns from these kinds of devices."""
        fit, own = self.made.rows(kinds), self.own if CLEAN in kinds else self.own[:0]
        n = len(self.made.labels)
        return Problem(
            updates=self.table,
            fit=np.concatenate([fit, n + np.arange(len(own))]),
            labels=np.concatenate([self.made.labels[fit], own]),
            ask=n + len(self.own) + np.arange(self.anonymous),
            options=self.options,
            nuisance=self.made.rows((NUISANCE,)),
        )


@dataclass(frozen=True, kw_only=True)
class TrainedShadows:
    """Devices run off line: ``halves`` of priors, to rehearse, and whole priors, in ``real`` (None: not needed).

    ``recorded`` says that the prior devices took part in the federation undefended: then the naive adversary learns
    from their recorded updates, as in the papers, and the adaptive one has them beside its clean devices.
    """

    halves: ShadowTable
    real: AttackTable | None
    recorded: bool


def train_shadows(
    view: AttackerView,
    questions: Questions,
    effort: Effort,
    *,
    recorded: bool = False,
    progress: Progress = lambda done: None,
) -> TrainedShadows:
    """Train what the adversaries learn from. ``view`` is that of the one who knows most.

    Raises FedprintError when too little was recorded.
    """
    empty = list(_nuisance(view))
    halves = list(half_priors(view, rounds=effort.validation_rounds, draws=effort.draws))
    counts = {"rounds": effort.clean_rounds, "defended": effort.defended_rounds, "draws": effort.draws}
    whole = list(whole_priors(view, **counts)) if effort.clean_rounds else []
    # In this order devices with background alone, which go with both, train once.
    made = train_plan(view, questions, [*halves, *empty, *whole], progress)
    comparison = with_sums(made.part(0, len(halves) + len(empty)), view)
    learnt = made.part(len(halves), len(made.labels))
    real = AttackTable.of(view, questions, learnt, recorded=recorded) if effort.clean_rounds else None
    return TrainedShadows(halves=comparison, real=real, recorded=recorded)


def training_mixes(
    name: AdversaryName, view: AttackerView, questions: Questions, devices: TrainedShadows
) -> tuple[TrainingMix, ...]:
    """Return the ways to learn that an adversary may ask; raises FedprintError when too little was recorded."""
    if name == "adaptive":
        return tuple(_adaptive(view, questions, devices))
    return (_naive(view, questions, devices),)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What an adversary learns from: recipes whose calibrated log-probabilities it averages.

    ``weights`` sum to 1. ``aps`` are mean APs in rehearsals, of each recipe that was tried.
    """

    mixes: tuple[TrainingMix, ...]
    weights: tuple[float, ...]
    aps: Mapping[str, float]

    @property
    def name(self) -> str:
        """Name in tables: of the recipe that counts most."""
        first = self.mixes[int(np.argmax(self.weights))].name
        return first if len(self.mixes) == 1 else f"{first} + {len(self.mixes) - 1} more"


def available_mixes(defences: Sequence[object]) -> Mapping[str, tuple[int, ...]]:
    """Return those of :data:`RECIPES` that there are: without a defence all devices are clean."""
    return {name: kinds for name, kinds in MIXES.items() if defences or kinds == (CLEAN,)}


def choose(found: Sequence[TrainingMix], work: Workspace, rng: torch.Generator) -> Choice:
    """Choose all recipes together, each with the power :data:`TRUST` of its users' mean AP by ridge as its weight.

    The first one as it is; each other takes background out, or does not, as rehearses best, and then is asked with
    settings by log-loss and with settings by AP. All together, as rehearsals do not tell well which is best
    (docs/adr/0007).
    """
    first, *others = found
    if not others:
        return Choice(mixes=(first,), weights=(1.0,), aps={})
    aps: dict[str, float] = {}

    def rehearse(mix: TrainingMix) -> float:
        aps[mix.name] = mix.ap(work, rng)
        return aps[mix.name]

    asked = [first]
    for mix in others:
        best = max(_denoised(mix), key=rehearse)
        asked += [best, best.by_ap()]
    for mix in asked:
        if mix.name not in aps:
            rehearse(mix)
    weights = np.array([aps[mix.name] for mix in asked]) ** TRUST
    return Choice(mixes=tuple(asked), weights=tuple((weights / weights.sum()).tolist()), aps=aps)


def distinct(choice: Choice, attack: Attack, work: Workspace) -> Choice:
    """Return the choice with the first of those recipes that an attack cannot tell apart, in the place of all.

    A preset chooses no settings, and takes no background out.
    """
    found: dict[object, tuple[TrainingMix, float]] = {}
    for mix, weight in zip(choice.mixes, choice.weights, strict=True):
        settings = work.settings(attack, mix.folds)
        problems = [mix.problem, *(fold.problem for fold in mix.folds)]
        rows = tuple((id(p.updates), p.fit.tobytes(), p.ask.tobytes()) for p in problems)
        key = (rows, repr(settings), mix.problem.denoise if "blocks" in settings else None)
        first, before = found.get(key, (mix, 0.0))
        found[key] = (first, before + weight)
    mixes, weights = zip(*found.values(), strict=True)
    return replace(choice, mixes=mixes, weights=weights)


def _denoised(mix: TrainingMix) -> tuple[TrainingMix, ...]:
    """Return the recipe and, if it knows what background alone does, both ways to take that out."""
    if not len(mix.problem.nuisance):
        return (mix,)
    return mix, mix.without("project"), mix.without("match")


def relabelled(problem: Problem, exchanged: Ints) -> Problem:
    """Return the problem with label i (m,) exchanged for ``exchanged[i]``: nothing is left to learn."""
    return replace(problem, labels=exchanged[problem.labels])


def _adaptive(view: AttackerView, questions: Questions, devices: TrainedShadows) -> Iterator[TrainingMix]:
    if view.defences is None:
        raise FedprintError("an adaptive adversary must know the defences; choose threat.adversaries: [naive]")
    asked = SUMMED if len(devices.halves.rows((SUMMED,))) else DEFENDED if view.defences else CLEAN
    naive, real = _naive(view, questions, devices), _real(devices)
    folds = validation_folds(devices.halves, (CLEAN,), asked, len(questions.options))
    yield replace(naive, name=NAIVE, compared=folds)
    for name, kinds in available_mixes(view.defences).items():
        folds = validation_folds(devices.halves, kinds, asked, len(questions.options))
        yield TrainingMix(name=name, problem=real.problem(kinds), folds=folds)


def _naive(view: AttackerView, questions: Questions, devices: TrainedShadows) -> TrainingMix:
    folds = undefended(view, questions, devices.halves)
    if devices.recorded:
        return TrainingMix(name="recorded", problem=attack_problem(view, questions), folds=folds)
    return TrainingMix(name="clean", problem=_real(devices).problem((CLEAN,)), folds=folds)


def _real(devices: TrainedShadows) -> AttackTable:
    if devices.real is None:
        raise FedprintError("no whole prior was trained off line; give the effort clean_rounds above 0")
    return devices.real


def _nuisance(view: AttackerView) -> DevicePlan:
    """Yield devices that hold nothing but background: a cluster each, a user each, or random examples of few users."""
    if not any(_adds_examples(defence) for defence in view.defences or ()) or not view.background:
        return
    pool = concat([user.examples for user in view.background])
    size = int(np.median([len(user.examples["y"]) for user in view.prior_users]))
    order = torch.randperm(len(pool["y"]), generator=torch_rng(view.seed, "nuisance"))
    owner = torch.repeat_interleave(torch.tensor([len(user.examples["y"]) for user in view.background]))
    modes: list[int] = []
    if CLUSTER in pool:
        clusters = pool[CLUSTER][order]
        modes = torch.unique(clusters).tolist()
        sets = [order[clusters == mode][:size] for mode in modes]
    elif len(view.background) >= NUISANCE_SETS:
        sets = [order[owner[order] == user][:size] for user in range(min(len(view.background), NUISANCE_USERS))]
    else:
        sets = list(torch.split(order, size))[:NUISANCE_SETS]
    for t in spread_rounds(view, 2 * NUISANCE_ROUNDS)[1::2]:
        for i, members in enumerate(sets):
            examples, mode = rows_of(pool, members), modes[i] if modes else NO_MODE
            yield ShadowDevice(user_id=-1 - i, examples=examples, round=t, tag="nuisance", mode=mode), -1


def background_devices(defences: Sequence[object], background: int) -> int:
    """Return about how many devices with nothing but background are trained off line, of ``background`` users."""
    adding = [defence for defence in defences if _adds_examples(defence)]
    if not adding or not background:
        return 0
    clusters = max((defence.clusters for defence in adding if isinstance(defence, MmAug)), default=0)
    return NUISANCE_ROUNDS * (clusters or min(max(background, NUISANCE_SETS), NUISANCE_USERS))


def _adds_examples(defence: object) -> bool:
    return isinstance(defence, DataDefence) and not isinstance(defence, SecretHead)
