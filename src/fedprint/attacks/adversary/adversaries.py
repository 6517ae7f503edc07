"""The naive adversary, which knows of no defence, and the adaptive one, which knows the defences (papers.md 5.1).

Where devices are defended, the adversary trains shadow devices on its prior users' data, from the recorded global
models, and learns from their updates. The *naive* adversary trains them without a defence. The *adaptive* one knows
the defences' public parameters, but not their randomness. It learns from several training mixes: that of the naive
adversary, clean shadow devices, defended ones (each with a random draw of its own), and both kinds together. It
averages the scores of all mixes, each weighted by the fourth power of its AP in shadow validation. That is on prior
data alone: the attack learns from one half of each prior and names the other half, which is defended like an anonymous
device. Both adversaries use the same clean shadow devices, which train once.
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
    validated,
    validation_ap,
    validation_folds,
    validation_scores,
    whole_priors,
    with_sums,
)
from fedprint.attacks.choices import NUISANCE_ROUNDS, NUISANCE_SETS, NUISANCE_USERS, TRUST
from fedprint.attacks.denoise import Denoise
from fedprint.attacks.problem import NO_MODE, Problem, Validation, attack_problem
from fedprint.attacks.reidentification.reidentify import tune
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.attacks.updates import Joined, RowsOf
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import CLUSTER, concat
from fedprint.defences.on_data import Augmentation, BkgRepl, MmAug
from fedprint.rng import torch_rng
from fedprint.types import AdversaryName, FedprintError, Ints, Questions

Progress = Callable[[int], None]

MIXES: Mapping[str, tuple[int, ...]] = {"clean": (CLEAN,), "defended": (DEFENDED,), "both": (CLEAN, DEFENDED)}
"""The kinds of shadow devices in each training mix of the adaptive adversary.

Its settings are chosen twice: by log-loss, which prefers unsure answers where updates are hidden well, and by AP, which
is noisy where users are few.
"""
NAIVE = "as naive"
"""One more mix of the adaptive adversary: the devices and settings of the naive one, for the same answers."""


@dataclass(frozen=True, kw_only=True)
class TrainingMix:
    """What an attack learns from (``recipe`` in result files): the real problem, and folds with known answers.

    Attacks are tuned on ``folds``. Mixes are compared on ``compared``, or on ``folds`` where ``compared`` is empty.
    """

    name: str
    problem: Problem
    folds: tuple[Validation, ...]
    compared: tuple[Validation, ...] = ()

    @property
    def comparison(self) -> tuple[Validation, ...]:
        """The validation problems on which mixes are compared."""
        return self.compared or self.folds

    def ap(self, work: Workspace, rng: torch.Generator) -> float:
        """Return the users' mean AP by ridge in shadow validation."""
        scores = validation_scores(Ridge(), self.comparison, tune(Ridge(), self.folds, work, rng), work, rng)
        return float(np.nanmean(validation_ap(scores, self.comparison)))

    def without(self, how: Denoise) -> TrainingMix:
        """Return the mix that first removes from updates what background examples added to them."""
        folds = tuple(replace(fold, problem=replace(fold.problem, denoise=how)) for fold in self.folds)
        return TrainingMix(name=f"{self.name}, {how}", problem=replace(self.problem, denoise=how), folds=folds)

    def by_ap(self) -> TrainingMix:
        """Return the mix with settings that are chosen by AP."""
        folds = tuple(replace(fold, by="ap") for fold in self.folds)
        return replace(self, name=f"{self.name}, by AP", folds=folds)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How many shadow devices are trained.

    Every whole prior trains once without a defence from each of ``clean_rounds`` recorded global models (0: only halves
    are needed), and ``draws`` times with a defence from ``defended_rounds`` of these. Its halves train from
    ``validation_rounds`` models, once without a defence and ``draws`` times with one.
    """

    clean_rounds: int
    defended_rounds: int
    draws: int
    validation_rounds: int

    def devices(self, view: AttackerView) -> int:
        """Return the largest number of devices that :func:`train_shadows` trains."""
        background = sum(1 for _ in _nuisance(view))
        rounds = view.store.rounds
        return len(view.prior_users) * self.whole(rounds) + validated(view) * self.halves(rounds) + background

    def whole(self, recorded: int) -> int:
        """Return the number of shadow devices with a whole prior, per user, of a store with ``recorded`` rounds."""
        return min(self.clean_rounds, recorded) + self.draws * min(self.defended_rounds, self.clean_rounds, recorded)

    def halves(self, recorded: int) -> int:
        """Return the number of shadow devices with half a prior, per user, of a store with ``recorded`` rounds."""
        return min(self.validation_rounds, recorded) * (1 + self.draws)

    def passes(self, rounds: int, growth: float, validating: float = 1.0) -> float:
        """Return how many times the examples of a prior are trained on, of a store with ``rounds`` rounds.

        A share ``validating`` of the priors is cut in halves.
        A defended device trains on ``growth`` times the data. With 0 it trains on the same data as the clean device,
        which then trains once for both.
        """
        clean, halves = min(self.clean_rounds, rounds), validating * min(self.validation_rounds, rounds) / 2
        return clean + halves + growth * (self.whole(rounds) - clean + self.draws * halves)


@dataclass(frozen=True, kw_only=True)
class AttackTable:
    """The rows of all attacks: learn from some kinds of shadow devices, name the sender of every anonymous update.

    ``updates`` has the rows of ``shadows``, then recorded prior updates with ``recorded_labels`` (clean ones too), then
    the anonymous updates. All adversaries use this one table, so that inner products of its rows are computed once.
    """

    updates: Joined
    shadows: ShadowTable
    recorded_labels: Ints
    anonymous: int
    options: int

    @classmethod
    def of(cls, view: AttackerView, questions: Questions, shadows: ShadowTable, *, recorded: bool) -> AttackTable:
        """Join shadow updates and recorded ones; ``recorded`` as in :class:`TrainedShadows`."""
        labels = view.prior_labels(questions) if recorded else np.zeros(0, dtype=np.int64)
        rows = np.concatenate([view.prior_rows[: len(labels)], view.anonymous_rows])
        return cls(
            updates=Joined(first=shadows.updates, second=RowsOf(updates=view.store, rows=rows)),
            shadows=shadows,
            recorded_labels=labels,
            anonymous=len(view.anonymous_rows),
            options=len(questions.options),
        )

    def spare(self) -> Ints:
        """Return the rows of the shadow devices of every second global model, for each kind: half of the effort."""
        rounds, rows = self.shadows.updates.sent.rounds, []
        for kind in (CLEAN, DEFENDED):
            of_kind = self.shadows.rows((kind,))
            _, position = np.unique(rounds[of_kind], return_inverse=True)
            rows.append(of_kind[position % 2 == 1])
        return np.concatenate(rows)

    def problem(self, kinds: Sequence[int]) -> Problem:
        """Return the problem that learns from these kinds of devices."""
        fit, recorded = self.shadows.rows(kinds), self.recorded_labels if CLEAN in kinds else self.recorded_labels[:0]
        n = len(self.shadows.labels)
        return Problem(
            updates=self.updates,
            fit=np.concatenate([fit, n + np.arange(len(recorded))]),
            labels=np.concatenate([self.shadows.labels[fit], recorded]),
            ask=n + len(self.recorded_labels) + np.arange(self.anonymous),
            options=self.options,
            nuisance=self.shadows.rows((NUISANCE,)),
        )


@dataclass(frozen=True, kw_only=True)
class TrainedShadows:
    """Updates of shadow devices: with ``halves`` of priors, for validation, and with whole priors, in ``real``.

    ``real`` is None where it is not needed. ``recorded`` says that the prior devices took part in the federation
    without a defence. Then the naive adversary learns from their recorded updates, as in the papers, and the adaptive
    one uses them beside its clean shadow devices.
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
    """Train the shadow devices of all adversaries; ``view`` is that of the adversary with most knowledge.

    Raises FedprintError when too little was recorded.
    """
    empty = list(_nuisance(view))
    halves = list(half_priors(view, rounds=effort.validation_rounds, draws=effort.draws))
    counts = {"rounds": effort.clean_rounds, "defended": effort.defended_rounds, "draws": effort.draws}
    whole = list(whole_priors(view, **counts)) if effort.clean_rounds else []
    # Both parts need the devices with background alone: in this order they train once.
    shadows = train_plan(view, questions, [*halves, *empty, *whole], progress)
    validation = with_sums(shadows.part(0, len(halves) + len(empty)), view)
    attack = shadows.part(len(halves), len(shadows.labels))
    real = AttackTable.of(view, questions, attack, recorded=recorded) if effort.clean_rounds else None
    return TrainedShadows(halves=validation, real=real, recorded=recorded)


def training_mixes(
    name: AdversaryName, view: AttackerView, questions: Questions, devices: TrainedShadows
) -> tuple[TrainingMix, ...]:
    """Return the training mixes of an adversary; raises FedprintError when too little was recorded."""
    if name == "adaptive":
        return tuple(_adaptive(view, questions, devices))
    return (_naive(view, questions, devices),)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The mixes that an adversary learns from: it averages their calibrated log-probabilities by ``weights``.

    ``weights`` sum to 1. ``aps`` are the mean APs in shadow validation of each mix that was tried.
    """

    mixes: tuple[TrainingMix, ...]
    weights: tuple[float, ...]
    aps: Mapping[str, float]

    @property
    def name(self) -> str:
        """Name in tables: that of the mix with the largest weight."""
        first = self.mixes[int(np.argmax(self.weights))].name
        return first if len(self.mixes) == 1 else f"{first} + {len(self.mixes) - 1} more"


def available_mixes(defences: Sequence[object]) -> Mapping[str, tuple[int, ...]]:
    """Return those of :data:`MIXES` that are possible: without a defence all devices are clean."""
    return {name: kinds for name, kinds in MIXES.items() if defences or kinds == (CLEAN,)}


def choose(mixes: Sequence[TrainingMix], work: Workspace, rng: torch.Generator) -> Choice:
    """Return all mixes together; a mix's weight is the power :data:`TRUST` of its users' mean AP by ridge.

    The first mix is used as it is. Of each other the best way to treat background is chosen (leave it in, or remove it
    in one of two ways), and it is used twice: with settings chosen by log-loss, and by AP. All are used because shadow
    validation does not show reliably which one is best (docs/adr/0007).
    """
    first, *others = mixes
    if not others:
        return Choice(mixes=(first,), weights=(1.0,), aps={})
    aps: dict[str, float] = {}

    def validate(mix: TrainingMix) -> float:
        aps[mix.name] = mix.ap(work, rng)
        return aps[mix.name]

    chosen = [first]
    for mix in others:
        best = max(_denoised(mix), key=validate)
        chosen += [best, best.by_ap()]
    for mix in chosen:
        if mix.name not in aps:
            validate(mix)
    weights = np.array([aps[mix.name] for mix in chosen]) ** TRUST
    return Choice(mixes=tuple(chosen), weights=tuple((weights / weights.sum()).tolist()), aps=aps)


def distinct(choice: Choice, attack: Attack, work: Workspace) -> Choice:
    """Return the choice with one mix for all that are the same to an attack; it gets the sum of their weights.

    A preset chooses no settings and removes no background.
    """
    weighted: dict[object, tuple[TrainingMix, float]] = {}
    for mix, weight in zip(choice.mixes, choice.weights, strict=True):
        settings = work.settings(attack, mix.folds)
        problems = [mix.problem, *(fold.problem for fold in mix.folds)]
        rows = tuple((id(p.updates), p.fit.tobytes(), p.ask.tobytes()) for p in problems)
        key = (rows, repr(settings), mix.problem.denoise if "blocks" in settings else None)
        first, before = weighted.get(key, (mix, 0.0))
        weighted[key] = (first, before + weight)
    mixes, weights = zip(*weighted.values(), strict=True)
    return replace(choice, mixes=mixes, weights=weights)


def _denoised(mix: TrainingMix) -> tuple[TrainingMix, ...]:
    """Return the mix and, where it has updates of background alone, the two mixes that remove these."""
    if not len(mix.problem.nuisance):
        return (mix,)
    return mix, mix.without("project"), mix.without("match")


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
        raise FedprintError("no shadow device has a whole prior; give the effort clean_rounds above 0")
    return devices.real


def _nuisance(view: AttackerView) -> DevicePlan:
    """Yield devices with background data alone: one cluster each, one user each, or, of few users, random examples."""
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
    """Return about how many shadow devices hold background data alone, where there are ``background`` users."""
    adding = [defence for defence in defences if _adds_examples(defence)]
    if not adding or not background:
        return 0
    clusters = max((defence.clusters for defence in adding if isinstance(defence, MmAug)), default=0)
    return NUISANCE_ROUNDS * (clusters or min(max(background, NUISANCE_SETS), NUISANCE_USERS))


def _adds_examples(defence: object) -> bool:
    return isinstance(defence, BkgRepl | Augmentation)
