"""The contract of defences: :class:`fedprint.types.DataDefence` and :class:`fedprint.types.UpdateDefence`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedprint.data.examples import CLUSTER, equal, num_examples, take
from fedprint.rng import torch_rng
from fedprint.testing.component import ComponentContract
from fedprint.types import DataDefence, Examples, Params, UpdateDefence


def update() -> dict[str, Tensor]:
    """Return an update of three tensors."""
    rng = torch_rng(0, "update")
    shapes = {"conv.weight": (4, 2, 3), "conv.bias": (4,), "head.weight": (5, 8)}
    return {name: 0.1 * torch.randn(shape, generator=rng) for name, shape in shapes.items()}


def examples(n: int, seed: int) -> dict[str, Tensor]:
    """Return n images with labels; ``cluster``, their mode, is what the public background has beside these."""
    rng = torch_rng(seed, "examples")
    return {
        "x": torch.randint(256, (n, 1, 10, 10), generator=rng, dtype=torch.uint8),
        "y": torch.randint(3, (n,), generator=rng),
        "t": torch.arange(n),
        "album": torch.arange(n),
        CLUSTER: torch.arange(n) % 3,
    }


class DefenceContract(ComponentContract):
    """A defence acts on a device's own data, or on its update, and draws from the generator that it is given."""

    def on_device(self, given: Params, seed: int = 0) -> Params:
        """Return what a device sends."""
        sent: Params = self.settled(seed).on_device(given, torch_rng(seed, "device"))
        return sent

    def on_data(self, own: Examples, background: Examples, seed: int = 0) -> Examples:
        """Return what a device trains on."""
        used: Examples = self.settled(seed).on_data(own, background, torch_rng(seed, "data"))
        return used

    def settled(self, seed: int = 0):  # type: ignore[no-untyped-def]  # a component of the class under test
        """Return the defence as one device runs it."""
        return self.component.settled(torch_rng(seed, "strength"))

    def test_a_device_settles_its_strength_once(self) -> None:
        """A settled defence is of the same class, and no device differs from it."""
        assert type(self.settled()) is type(self.component)
        assert self.settled().varying == ()

    def test_a_neutral_defence_protects_nobody(self) -> None:
        """Reports say of a neutral setting that there is no defence."""
        neutral = type(self.component).neutral
        if neutral:
            assert not self.component.model_copy(update=dict(neutral)).protects
        assert isinstance(self.settled().protects, bool)

    def test_an_update_keeps_its_shapes(self) -> None:
        """The server averages updates: names, shapes and types stay, and all numbers are finite."""
        if not isinstance(self.component, UpdateDefence):
            return
        before = update()
        for after in (self.on_device(before), self.settled().on_server(before, 10, torch_rng(0, "server"))):
            assert {n: (t.shape, t.dtype) for n, t in after.items()} == {
                n: (t.shape, t.dtype) for n, t in before.items()
            }
            assert all(tensor.isfinite().all() for tensor in after.values())
        assert equal(before, update()), "it changed the update that it was given"

    def test_an_update_depends_on_the_generator_alone(self) -> None:
        """Equal seeds give equal updates."""
        if isinstance(self.component, UpdateDefence):
            assert equal(self.on_device(update()), self.on_device(update()))

    def test_a_neutral_update_defence_changes_nothing(self) -> None:
        """And any other changes something, on the device or on the server."""
        component: Any = self.component
        if not isinstance(self.component, UpdateDefence):
            return
        neutral = type(component).neutral
        if neutral:
            off = component.model_copy(update=dict(neutral))
            assert equal(off.on_device(update(), torch_rng(0, "device")), update())
        server = self.settled().on_server(update(), 10, torch_rng(0, "server"))
        if self.settled().protects:
            assert not (equal(self.on_device(update()), update()) and equal(server, update()))

    def test_a_device_always_has_examples(self) -> None:
        """Also one with a single example; inputs and targets are there, and all columns have the same length."""
        if not isinstance(self.component, DataDefence):
            return
        for n in (1, 12):
            own, background = examples(n, 1), examples(60, 2)
            used = self.on_data(own, background)
            assert num_examples(used) >= 1
            assert set(used) >= {"x", "y"}
            assert {name: used[name].dtype for name in "xy"} == {name: own[name].dtype for name in "xy"}
            assert equal(own, examples(n, 1)) and equal(background, examples(60, 2)), "it changed what it was given"

    def test_data_depend_on_the_generator_alone(self) -> None:
        """Equal seeds give equal data."""
        if isinstance(self.component, DataDefence):
            first, second = (self.on_data(examples(12, 1), examples(60, 2)) for _ in range(2))
            assert equal(take(first, slice(None)), take(second, slice(None)))
