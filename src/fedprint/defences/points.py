"""The two points at which defences act: on a device's data before training, on its update before it leaves."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedprint.defences.on_counts import CoarseCounts
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.secure_aggregation import SecureAggregation
from fedprint.rng import torch_rng
from fedprint.types import DataDefence, Device, Examples, Params, Role, UpdateDefence

Defence = DataDefence | UpdateDefence | CoarseCounts | SecureAggregation
ROLES: tuple[Role, ...] = ("anonymous", "prior")
"""Roles whose devices are defended: all, unless a setting of the papers leaves the adversary's devices undefended."""


def settle(defences: Sequence[Defence], device_id: str, seed: int) -> tuple[Defence, ...]:
    """Return the defences as one device runs them: where strengths are a distribution, it draws one once."""
    return tuple(
        defence.settled(torch_rng(seed, "strength", position, device_id)) for position, defence in enumerate(defences)
    )


def defend_data(
    devices: Sequence[Device],
    defences: Sequence[Defence],
    background: Examples,
    seed: int,
    roles: Collection[Role] = ROLES,
) -> tuple[Device, ...]:
    """Point 1: apply the data defences, in list order, to each device of ``roles`` on its own."""
    return tuple(
        _defend_device(device, defences, background, seed) if device.role in roles else device for device in devices
    )


def _defend_device(device: Device, defences: Sequence[Defence], background: Examples, seed: int) -> Device:
    examples = device.examples
    for position, defence in enumerate(settle(defences, device.device_id, seed)):
        if isinstance(defence, DataDefence):
            examples = defence.on_data(
                examples, background, torch_rng(seed, "defence-data", position, device.device_id)
            )
    return Device(device_id=device.device_id, user_id=device.user_id, role=device.role, examples=examples)


def defend_update(update: Params, defences: Sequence[Defence], seed: int, t: int, device_id: str) -> Params:
    """Point 2: return what a device sends in round t, given its settled defences."""
    for position, defence in enumerate(d for d in defences if isinstance(d, UpdateDefence)):
        update = defence.on_device(update, torch_rng(seed, "defence-device", position, t, device_id))
    return update


def defend_count(count: int, defences: Sequence[Defence]) -> int:
    """Point 2: return the number of examples that a device names beside its update, given its settled defences."""
    for defence in defences:
        if isinstance(defence, CoarseCounts):
            count = defence.on_count(count)
    return count


def has_guarantee(defences: Sequence[Defence]) -> bool:
    """Return whether dp-fedavg adds noise: then all devices have equal weight, and a Poisson sample's size is secret.

    No other defence has an epsilon: ``planned_events`` (federation/privacy.py) prices dp-fedavg alone.
    """
    return any(isinstance(defence, DpFedAvg) and defence.z > 0 for defence in defences)
