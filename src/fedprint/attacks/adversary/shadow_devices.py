"""Shadow devices: the adversary trains its prior users' examples itself, from the recorded global models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedprint.attacks.problem import NO_MODE
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import NOBODY, AttackerView
from fedprint.data.examples import CLUSTER, concat, take
from fedprint.data.splits import num_albums, split_albums
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.points import Defence, defend_count, defend_data, defend_update, settle
from fedprint.lab.gpus import torch_devices
from fedprint.params import flatten
from fedprint.rng import numpy_rng, seed_for, torch_rng
from fedprint.store.sent import Sent
from fedprint.types import ClientJob, DataDefence, Device, Examples, Params, User


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
    """Return the positions (n / 2,) of both halves; a prior of a single album is cut at random."""
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
    return take(examples, index)


@dataclass(frozen=True, kw_only=True)
class ShadowDevice:
    """A device that the adversary trains itself, on ``examples``, from the global model of ``round``.

    ``tag`` distinguishes several devices of a user in a round; they see their batches in the same order. A
    ``defended`` one applies the defences that the adversary knows, with fresh randomness: it draws a strength,
    background examples and noise as any device does, except for the ``mode`` of mm-aug where one is given.
    """

    user_id: int
    examples: Examples
    round: int
    tag: str = ""
    defended: bool = False
    mode: int = NO_MODE

    @property
    def device_id(self) -> str:
        """Name from which the device's randomness comes."""
        return f"shadow-{self.user_id}-{self.tag}"


def spread_rounds(view: AttackerView, count: int) -> list[int]:
    """Return at most ``count`` recorded rounds, spread evenly over training, the first and the last among them."""
    return spread(range(view.store.rounds), count)


def spread(rounds: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` of ``rounds``, evenly spread, the first and the last among them."""
    last = len(rounds) - 1
    chosen: list[int] = np.unique(np.linspace(0, last, min(count, last + 1)).round().astype(int)).tolist()
    return [rounds[i] for i in chosen]


def shadow_updates(
    view: AttackerView, devices: Sequence[ShadowDevice], progress: Callable[[int], None] = lambda done: None
) -> MemoryUpdates:
    """Train the devices and return their updates (len(devices), d), in the store's layers and their order.

    Only the public task is used: the recorded global models, the public model and local training. ``progress`` is
    called with the number of devices done.
    """
    # late: it brings Lightning, which reading a config need not
    from fedprint.federation.backends import make_backend, without_a_trial

    names = view.store.layers
    sizes = {name: view.store.sizes[name] for name in names}
    values = np.empty((len(devices), sum(sizes.values())), dtype=np.float32)
    executor = without_a_trial(view.model, view.device)
    backend = make_backend(executor, view.model, torch_devices(view.device))
    defend = _Defend.of(view)
    done, examples_of = 0, np.zeros(len(devices), dtype=np.int64)
    for t in sorted({device.round for device in devices}):
        params = view.store.global_params(t)
        dtype = next(iter(params.values())).dtype
        of_round = [i for i, device in enumerate(devices) if device.round == t]
        data = [defend.data(devices[i]) for i in of_round]
        # Devices of a user with the same data train alike, defended or not: they train once.
        keys = [(devices[i].user_id, id(examples)) for i, examples in zip(of_round, data, strict=True)]
        jobs = {
            key: _job(view, devices[i], _as(examples, dtype), defend)
            for key, i, examples in zip(keys, of_round, data, strict=True)
        }
        trained = dict(zip(jobs, backend.run(list(jobs.values()), params, view.training[t]), strict=True))
        for key, i in zip(keys, of_round, strict=True):
            update = defend.update(devices[i], trained[key].update)
            values[i] = flatten({name: update[name] for name in names}).float().numpy()
            examples_of[i] = defend.count(devices[i], trained[key].num_examples)
        done += len(of_round)
        progress(done)
    rounds = np.array([device.round for device in devices], dtype=np.int64)
    histories = view.histories()
    history = np.array([histories.get(device.user_id, histories[NOBODY]) for device in devices])
    return MemoryUpdates(sizes=sizes, values=values, sent=Sent(examples=examples_of, rounds=rounds, history=history))


@dataclass(frozen=True, kw_only=True)
class _Defend:
    """Both points of the known defences, as a shadow device applies them."""

    view: AttackerView
    defences: tuple[Defence, ...]
    pool: Examples

    @classmethod
    def of(cls, view: AttackerView) -> _Defend:
        pool = concat([user.examples for user in view.background]) if view.background else {}
        return cls(view=view, defences=view.defences or (), pool=pool)

    def data(self, device: ShadowDevice) -> Examples:
        """Return what the device trains on: the very same examples where no defence changes the data."""
        if not device.defended or not any(isinstance(defence, DataDefence) for defence in self.defences):
            return device.examples
        examples = {name: column for name, column in device.examples.items() if name in ("x", "y")}
        plain = Device(device_id=device.device_id, user_id=device.user_id, role="prior", examples=examples)
        return defend_data([plain], self.defences, self._background(device.mode), self._seed(device))[0].examples

    def _background(self, mode: int) -> Examples:
        return self.pool if mode == NO_MODE else rows_of(self.pool, torch.nonzero(self.pool[CLUSTER] == mode)[:, 0])

    def private(self, device: ShadowDevice) -> Params:
        """Return a new secret head: the adversary cannot know what earlier rounds made of a device's head."""
        from fedprint.models.dual_head import DualHead  # late: it brings Lightning

        if not device.defended or not isinstance(self.view.model, DualHead):
            return {}
        return self.view.model.draw_private(torch_rng(self._seed(device), "secret-head", device.device_id))

    def update(self, device: ShadowDevice, update: Params) -> Params:
        """Return what the device sends."""
        if not device.defended:
            return update
        settled = settle(self._known_in(device.round), device.device_id, self._seed(device))
        return defend_update(update, settled, self._seed(device), device.round, device.device_id)

    def count(self, device: ShadowDevice, count: int) -> int:
        """Return the number of examples that the device names."""
        return defend_count(count, self.defences) if device.defended else count

    def _known_in(self, t: int) -> tuple[Defence, ...]:
        """Return the defences of round ``t``; dp-fedavg clips at the norm that the server announced for it, if any.

        Without an announced norm (only rounds with noise are in the ledger) devices are not clipped.
        """
        if not (norms := self.view.rule.norms):
            return self.defences
        return tuple(d.model_copy(update={"clip": norms[t]}) if isinstance(d, DpFedAvg) else d for d in self.defences)

    def _seed(self, device: ShadowDevice) -> int:
        return seed_for(self.view.seed, "shadow-defence", device.round)


def _job(view: AttackerView, device: ShadowDevice, examples: Examples, defend: _Defend) -> ClientJob:
    return ClientJob(
        device_id=device.device_id,
        examples=examples,
        seed=seed_for(view.seed, "shadow", device.round, device.user_id),
        private=defend.private(device),
    )


def _as(examples: Examples, dtype: torch.dtype) -> Examples:
    return {name: column.to(dtype) if column.is_floating_point() else column for name, column in examples.items()}
