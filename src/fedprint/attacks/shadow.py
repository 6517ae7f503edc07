"""Validation inside the prior: what the adversary uses to choose an attack, its layers and its hyper-parameters.

Cross-validation over the recorded prior updates alone rewards what is peculiar to a *device* (its number of examples,
the pixels it never lights), because one prior device sends all updates of its user. The anonymous device is another
device with other data. So the adversary cuts each user's prior examples into two halves, trains both off line from
the recorded global models, and validates from one half to the other: another device of the same user, as in the attack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from fedprint.attacks.denoise import Denoise
from fedprint.attacks.features import Updates
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import concat
from fedprint.data.splits import num_albums, split_albums
from fedprint.defences.points import Defence, defend_data, send, settle
from fedprint.params import flatten
from fedprint.rng import numpy_rng, seed_for, torch_rng
from fedprint.types import ClientJob, Device, Examples, FedprintError, Params, Questions, User

_MORE = "train more rounds (federation.rounds) or raise federation.fraction"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Name the sender of the ``ask`` rows, given ``fit`` rows with ``labels`` (p,) in [0, m).

    ``nuisance`` are rows of devices without any user's data, which kernel attacks take out of the others as ``denoise``
    says (attacks/denoise.py); None takes nothing out.
    """

    updates: Updates
    fit: NDArray[np.int64]
    labels: NDArray[np.int64]
    ask: NDArray[np.int64]
    options: int
    nuisance: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    denoise: Denoise | None = None


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A problem whose answers (q,) the adversary knows, because it made the updates."""

    problem: Problem
    answers: NDArray[np.int64]


def attack_problem(view: AttackerView, questions: Questions) -> Problem:
    """Return the real problem: fit on the recorded prior updates, ask for every anonymous one."""
    labels = view.prior_labels(questions)
    if len(np.unique(labels)) < 2:
        raise FedprintError(f"updates of fewer than two prior devices were recorded; {_MORE}")
    return Problem(
        updates=view.store,
        fit=view.prior_rows,
        labels=labels,
        ask=view.anonymous_rows,
        options=len(questions.options),
    )


def validations(
    view: AttackerView, questions: Questions, *, rounds: int, progress: Callable[[int], None]
) -> tuple[Validation, ...]:
    """Return two validation problems (first half names second half, and back).

    ``rounds`` recorded global models are used, spread evenly over training; the halves are trained at alternating ones.
    Where most priors have a single example no half exists: then recorded prior updates of even and odd rounds.
    Raises FedprintError when too few rounds were recorded.
    """
    if view.store.rounds < 2:
        raise FedprintError(f"validation needs two rounds, the store has {view.store.rounds}; raise federation.rounds")
    halves = cut_halves(view, view.prior_users)
    if len(halves) < max(2, len(view.prior_users) // 2):
        return _round_folds(view, questions)
    updates, labels, side = _train_halves(view, halves, questions, rounds, progress)
    folds = []
    for fit_side in (0, 1):
        fit, ask = np.flatnonzero(side == fit_side), np.flatnonzero(side != fit_side)
        problem = Problem(updates=updates, fit=fit, labels=labels[fit], ask=ask, options=len(questions.options))
        folds.append(Validation(problem=problem, answers=labels[ask]))
    return tuple(folds)


def cut_halves(view: AttackerView, users: Iterable[User]) -> dict[int, tuple[Examples, Examples]]:
    """Cut each user's examples in two as priors were cut from the private data: by time, by album, or at random.

    Users with a single example are left out. Keys are user ids.
    """
    halves = {}
    for user in users:
        if len(user.examples["y"]) > 1:
            first, second = _cut(view, user)
            halves[user.user_id] = (rows_of(user.examples, first), rows_of(user.examples, second))
    return halves


def _cut(view: AttackerView, user: User) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the examples (n / 2,) of both halves; a prior of a single album is cut at random."""
    n = len(user.examples["y"])
    if view.by_album and num_albums(user.examples) > 1:
        rng = numpy_rng(view.seed, "shadow-albums", user.user_id)
        first = torch.from_numpy(split_albums(user.examples["album"].numpy(), 0.5, rng))
        return torch.nonzero(first)[:, 0], torch.nonzero(~first)[:, 0]
    order = torch.randperm(n, generator=torch_rng(view.seed, "shadow-halves", user.user_id))
    if view.chronological:
        order = torch.argsort(user.examples["t"], stable=True)
    return order[: n // 2], order[n // 2 :]


def rows_of(examples: Examples, index: torch.Tensor) -> Examples:
    """Return the examples at the positions ``index``."""
    return {name: column[index] for name, column in examples.items()}


def _train_halves(
    view: AttackerView,
    halves: dict[int, tuple[Examples, Examples]],
    questions: Questions,
    rounds: int,
    progress: Callable[[int], None],
) -> tuple[MemoryUpdates, NDArray[np.int64], NDArray[np.int64]]:
    """Train both halves from evenly spread global models: updates (n, d), labels (n,), side (n,) in {0, 1}."""
    position = {user: i for i, user in enumerate(questions.options)}
    devices: list[ShadowDevice] = []
    sides: list[int] = []
    for turn, t in enumerate(spread_rounds(view, rounds)):
        side = turn % 2  # first halves at even turns, second at odd: fit and ask never share a global model
        devices += [
            ShadowDevice(user_id=user_id, examples=pair[side], round=t, tag=str(side))
            for user_id, pair in halves.items()
        ]
        sides += [side] * len(halves)
    labels = np.array([position[view.labels[device.user_id]] for device in devices], dtype=np.int64)
    return shadow_updates(view, devices, progress), labels, np.array(sides, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class ShadowDevice:
    """A device that the adversary runs off line: whose ``examples`` train from the global model of which ``round``.

    ``tag`` tells several devices of a user in a round apart, in their names; their batches come in equal orders.
    A ``defended`` one applies the defences that the adversary knows, with randomness of its own: it draws a strength,
    background examples and noise as any device would.
    """

    user_id: int
    examples: Examples
    round: int
    tag: str = ""
    defended: bool = False

    @property
    def device_id(self) -> str:
        """Name from which the device's randomness comes."""
        return f"shadow-{self.user_id}-{self.tag}"


def spread_rounds(view: AttackerView, count: int) -> list[int]:
    """Return at most ``count`` recorded rounds, spread evenly over training, the first and the last among them."""
    last = view.store.rounds - 1
    rounds: list[int] = np.unique(np.linspace(0, last, min(count, last + 1)).round().astype(int)).tolist()
    return rounds


def shadow_updates(
    view: AttackerView, devices: Sequence[ShadowDevice], progress: Callable[[int], None] = lambda done: None
) -> MemoryUpdates:
    """Train the devices off line and return their updates (len(devices), d) in the store's layers, in their order.

    Uses the public task alone: the recorded global models, the public model and local training. ``progress`` takes the
    number of devices done.
    """
    from fedprint.federation.backends import make_backend  # late: it brings Lightning, which reading a config need not

    names = view.store.layers
    sizes = {name: view.store.sizes[name] for name in names}
    values = np.empty((len(devices), sum(sizes.values())), dtype=np.float32)
    backend = make_backend("threaded", view.model)
    defend = _Defend.of(view) if any(device.defended for device in devices) else None
    done = 0
    for t in sorted({device.round for device in devices}):
        params = view.store.global_params(t)
        dtype = next(iter(params.values())).dtype
        places = [i for i, device in enumerate(devices) if device.round == t]
        jobs = [_job(view, devices[i], dtype, defend) for i in places]
        for i, result in zip(places, backend.run(jobs, params, view.training), strict=True):
            update = result.update
            if defend is not None and devices[i].defended:
                update = defend.update(devices[i], update)
            values[i] = flatten({name: update[name] for name in names}).float().numpy()
        done += len(jobs)
        progress(done)
    return MemoryUpdates(sizes=sizes, values=values)


@dataclass(frozen=True, kw_only=True)
class _Defend:
    """Both points of the known defences, as a device off line applies them."""

    view: AttackerView
    defences: tuple[Defence, ...]
    pool: Examples

    @classmethod
    def of(cls, view: AttackerView) -> _Defend:
        pool = concat([user.examples for user in view.background]) if view.background else {}
        return cls(view=view, defences=view.defences or (), pool=pool)

    def data(self, device: ShadowDevice) -> Examples:
        examples = {name: column for name, column in device.examples.items() if name in ("x", "y")}
        plain = Device(device_id=device.device_id, user_id=device.user_id, role="prior", examples=examples)
        return defend_data([plain], self.defences, self.pool, self._seed(device))[0].examples

    def private(self, device: ShadowDevice) -> Params:
        """Return a secret head as a device begins with: what earlier rounds made of it the adversary cannot know."""
        from fedprint.models.dual_head import DualHead  # late: it brings Lightning

        if not isinstance(self.view.model, DualHead):
            return {}
        return self.view.model.draw_private(torch_rng(self._seed(device), "secret-head", device.device_id))

    def update(self, device: ShadowDevice, update: Params) -> Params:
        settled = settle(self.defences, device.device_id, self._seed(device))
        return send(update, settled, self._seed(device), device.round, device.device_id)

    def _seed(self, device: ShadowDevice) -> int:
        return seed_for(self.view.seed, "shadow-defence", device.round)


def _job(view: AttackerView, device: ShadowDevice, dtype: torch.dtype, defend: _Defend | None) -> ClientJob:
    guard = defend if device.defended else None
    return ClientJob(
        device_id=device.device_id,
        examples=_as(device.examples if guard is None else guard.data(device), dtype),
        seed=seed_for(view.seed, "shadow", device.round, device.user_id),
        private={} if guard is None else guard.private(device),
    )


def _as(examples: Examples, dtype: torch.dtype) -> Examples:
    return {name: column.to(dtype) if column.is_floating_point() else column for name, column in examples.items()}


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
        raise FedprintError(f"prior devices took part in even or in odd rounds only; {_MORE}")
    return tuple(folds)
