"""Shadow validation: how the adversary chooses an attack, its layers and its hyper-parameters on prior data alone.

Cross-validation over the recorded prior updates would reward what is peculiar to a *device* (its number of examples,
the pixels it never lights), because one prior device sends all updates of its user. The anonymous device is another
device with other data. So the adversary cuts each user's prior examples into two halves and trains a shadow device on
each, from the recorded global models. It learns from one half and validates on the other: another device of the same
user, as in the attack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from scipy.special import log_softmax

from fedprint.attacks.adversary.shadow_devices import ShadowDevice, cut_halves, shadow_updates, spread, spread_rounds
from fedprint.attacks.choices import VALIDATED
from fedprint.attacks.problem import MORE_ROUNDS, Problem, Validation, among_users, evenly_spread
from fedprint.attacks.reidentification.reidentify import Tuned, scores_of
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import CLUSTER
from fedprint.defences.secure_aggregation import secure_aggregation
from fedprint.ranking import average_precision
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, Examples, FedprintError, Ints, Questions, Scores

Progress = Callable[[int], None]

CLEAN, DEFENDED, NUISANCE, SUMMED = 0, 1, 2, 3
"""Kinds of shadow devices: without a defence, defended, with background data alone, and defended devices as secure
aggregation shows them (sums)."""


@dataclass(frozen=True, kw_only=True)
class ShadowTable:
    """Updates (n, d) of shadow devices with their ``labels``, ``kind`` and ``side`` (the half of a prior): all (n,).

    Devices of one ``turn`` (n,) are of different users and trained from one global model: they could form a cohort.
    ``mode`` (n,) is the mode from which the adversary gave a device background, if it chose one.
    """

    updates: MemoryUpdates
    labels: Ints
    kind: Ints
    side: Ints
    turn: Ints
    mode: Ints

    def rows(self, kinds: Sequence[int], side: int | None = None) -> Ints:
        """Return the rows of some kinds of devices, of one half or of any."""
        wanted = np.isin(self.kind, kinds)
        return np.flatnonzero(wanted if side is None else wanted & (self.side == side))

    def part(self, start: int, stop: int) -> ShadowTable:
        """Return the rows from ``start`` to before ``stop``; the updates are not copied."""
        few = slice(start, stop)
        updates = replace(self.updates, values=self.updates.values[few], sent=self.updates.sent.rows(few))
        arrays = {f.name: getattr(self, f.name)[few] for f in fields(self) if f.name != "updates"}
        return ShadowTable(updates=updates, **arrays)


DevicePlan = Iterable[tuple[ShadowDevice, int]]
"""Shadow devices, each with the half of the prior that it has (-1: neither)."""


def train_plan(
    view: AttackerView, questions: Questions, plan: DevicePlan, progress: Progress = lambda done: None
) -> ShadowTable:
    """Train the devices of a plan and return their updates."""
    devices, sides = zip(*plan, strict=True)
    position = {user: i for i, user in enumerate(questions.options)}
    return ShadowTable(
        updates=shadow_updates(view, devices, progress),
        labels=np.array([position.get(view.labels.get(d.user_id, -1), -1) for d in devices], dtype=np.int64),
        kind=np.array([NUISANCE if d.user_id < 0 else DEFENDED if d.defended else CLEAN for d in devices]),
        side=np.array(sides, dtype=np.int64),
        turn=np.unique([f"{d.round} {d.tag}" for d in devices], return_inverse=True)[1].astype(np.int64),
        mode=np.array([d.mode for d in devices], dtype=np.int64),
    )


def with_sums(shadows: ShadowTable, view: AttackerView) -> ShadowTable:
    """Return the updates and, after them, what secure aggregation, if it is used, would show of the defended ones.

    One row per device: the mean of its group. Half of a group's devices are the adversary's own prior devices, so
    that a mean holds half as many anonymous devices as the group has, as in the federation.
    """
    secure = secure_aggregation(view.defences or ())
    hidden = 1 if secure is None else len(secure.groups(view.store.layout.cohort)[0]) // 2
    if hidden < 2:
        return shadows
    rng, groups = numpy_rng(view.seed, "rehearsed-groups"), []
    for turn in np.unique(shadows.turn[shadows.kind == DEFENDED]):
        members = rng.permutation(np.flatnonzero(shadows.turn == turn))
        groups += np.array_split(members, max(1, len(members) // hidden))
    means = [shadows.updates.values[group].mean(0, keepdims=True).repeat(len(group), 0) for group in groups]
    rows, updates = np.concatenate(groups), shadows.updates
    sent = updates.sent.rows(rows)
    if sent.known:  # of a group's sum the server knows how many examples it holds together
        sent = replace(sent, examples=np.concatenate([_shared(updates.sent.examples[group]) for group in groups]))
    return ShadowTable(
        updates=replace(updates, values=np.concatenate([updates.values, *means]), sent=updates.sent.joined(sent)),
        labels=np.concatenate([shadows.labels, shadows.labels[rows]]),
        kind=np.concatenate([shadows.kind, np.full(len(rows), SUMMED)]),
        side=np.concatenate([shadows.side, shadows.side[rows]]),
        turn=np.concatenate([shadows.turn, shadows.turn[rows]]),
        mode=np.concatenate([shadows.mode, shadows.mode[rows]]),
    )


def _shared(examples: Ints) -> Ints:
    return np.full(len(examples), round(float(examples.mean())), dtype=np.int64)


def whole_priors(view: AttackerView, *, rounds: int, defended: int, draws: int) -> DevicePlan:
    """Yield a clean device per prior from each of ``rounds`` models, and ``draws`` defended ones from ``defended``."""
    turns = spread_rounds(view, rounds)
    beside = set(spread(turns, defended))
    for t in turns:
        for user in view.prior_users:
            for device in _both_kinds(user.user_id, user.examples, t, "whole", draws if t in beside else 0):
                yield device, 0


def half_priors(view: AttackerView, *, rounds: int, draws: int) -> DevicePlan:
    """Yield clean and defended devices of the halves of every prior, or of :data:`VALIDATED` of many.

    First halves train at even turns and second halves at odd ones, so that fit and asked rows share no global model.
    Where most priors have a single example, both halves are that example.
    """
    _two_rounds(view)
    halves = prior_halves(view)
    for turn, t in enumerate(spread_rounds(view, rounds)):
        side = turn % 2
        for user_id, pair in halves.items():
            for device in _both_kinds(user_id, pair[side], t, f"half-{side}", draws):
                yield device, side


def validation_folds(shadows: ShadowTable, learn: Sequence[int], asked: int, options: int) -> tuple[Validation, ...]:
    """Return two problems: learn from one half of the kinds ``learn`` and name the other half of the kind ``asked``."""
    folds = []
    for side in (0, 1):
        fit, ask = shadows.rows(learn, side), shadows.rows((asked,), 1 - side)
        problem = Problem(
            updates=shadows.updates,
            fit=fit,
            labels=shadows.labels[fit],
            ask=ask,
            options=options,
            nuisance=shadows.rows((NUISANCE,)),
        )
        fold = Validation(problem=problem, answers=shadows.labels[ask])
        validated = np.unique(shadows.labels[fit])
        folds.append(among_users(fold, validated) if len(validated) <= VALIDATED < options else fold)
    return tuple(folds)


def validations(
    view: AttackerView, questions: Questions, *, rounds: int, progress: Progress = lambda done: None
) -> tuple[Validation, ...]:
    """Return two validation problems on undefended devices: learn from first halves and name second ones, and back.

    Halves train from ``rounds`` recorded global models, spread evenly over training, in turn. Where most priors have a
    single example there are no halves: then the problems are recorded prior updates of even and of odd rounds.
    Raises FedprintError when too few rounds were recorded.
    """
    _two_rounds(view)
    if _halves(view) is None:
        return _round_folds(view, questions)
    return undefended(view, questions, train_plan(view, questions, half_priors(view, rounds=rounds, draws=0), progress))


def undefended(view: AttackerView, questions: Questions, halves: ShadowTable) -> tuple[Validation, ...]:
    """Return the problems of :func:`validations` on the clean devices among ``halves``, which are trained already."""
    if _halves(view) is None:
        return _round_folds(view, questions)
    return validation_folds(halves, (CLEAN,), CLEAN, len(questions.options))


def validation_scores(
    attack: Attack, validations: Sequence[Validation], tuned: Tuned, work: Workspace, rng: torch.Generator
) -> list[Scores]:
    """Return calibrated log-probabilities (q, m) on each of the validation problems."""
    scored = (scores_of(attack, v.problem, tuned.settings, work, rng) for v in validations)
    return [log_softmax(tuned.temperature * scores, axis=1) for scores in scored]


def validation_ap(scored: Sequence[Scores], validations: Sequence[Validation]) -> Doubles:
    """Return each user's mean AP (m,) over the validation problems; NaN for a user that none of them asks about.

    Raises FedprintError for scores that are not finite: their AP would mean nothing.
    """
    if not all(np.isfinite(scores).all() for scores in scored):
        raise FedprintError("an attack's scores in shadow validation hold NaN or infinity; lower federation.lr")
    aps = np.array([average_precision(scores, v.answers) for scores, v in zip(scored, validations, strict=True)])
    known = (~np.isnan(aps)).sum(0)
    means: Doubles = np.where(known > 0, np.nansum(aps, axis=0) / np.maximum(known, 1), np.nan)
    return means


def _two_rounds(view: AttackerView) -> None:
    if view.store.rounds < 2:
        raise FedprintError(f"validation needs two rounds, the store has {view.store.rounds}; raise federation.rounds")


def prior_halves(view: AttackerView) -> dict[int, tuple[Examples, Examples]]:
    """Return both halves of the priors that validate, by user id; where most cannot be cut, the whole prior twice."""
    halves = _halves(view) or {user.user_id: (user.examples, user.examples) for user in view.prior_users}
    users = list(halves)
    return {users[i]: halves[users[i]] for i in evenly_spread(len(users), validated(view)).tolist()}


def validated(view: AttackerView) -> int:
    """Return how many priors are cut in halves at most: all of them where the background has modes."""
    modes = any(CLUSTER in user.examples for user in view.background)
    return len(view.prior_users) if modes else min(VALIDATED, len(view.prior_users))


def _halves(view: AttackerView) -> dict[int, tuple[Examples, Examples]] | None:
    """Return the halves of the priors that can be cut, None where most cannot."""
    halves = cut_halves(view, view.prior_users)
    return halves if len(halves) >= max(2, len(view.prior_users) // 2) else None


def _both_kinds(user_id: int, examples: Examples, t: int, tag: str, draws: int) -> Iterator[ShadowDevice]:
    yield ShadowDevice(user_id=user_id, examples=examples, round=t, tag=f"{tag}-clean")
    for draw in range(draws):
        yield ShadowDevice(user_id=user_id, examples=examples, round=t, tag=f"{tag}-{draw}", defended=True)


def _round_folds(view: AttackerView, questions: Questions) -> tuple[Validation, ...]:
    rows, labels = view.prior_rows, view.prior_labels(questions)
    odd = view.store.index["round"].to_numpy()[rows] % 2
    folds = []
    for fold in (0, 1):
        fit, ask = odd == fold, odd != fold
        if not fit.any() or not ask.any():
            continue
        problem = Problem(
            updates=view.store, fit=rows[fit], labels=labels[fit], ask=rows[ask], options=len(questions.options)
        )
        folds.append(Validation(problem=problem, answers=labels[ask]))
    if not folds:
        raise FedprintError(f"prior devices took part in even or in odd rounds only; {MORE_ROUNDS}")
    return tuple(folds)
