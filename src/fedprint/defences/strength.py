"""How strongly a device protects itself: one strength for all, or a distribution over devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

import torch
from pydantic import Field

from fedprint.component import Component
from fedprint.types import FedprintError

Fraction = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Strength = TypeVar("Strength", bound=float)


class Defence(Component):
    """Base of every defence.

    A field that admits a tuple of strengths describes a population: each device draws one of them, all equally likely,
    once. ``alpha: [0, 0, 1]`` protects a third of the devices (gradient-leaks, 6: every user chooses).
    ``neutral`` are the settings at which a defence changes nothing, empty where there are none.
    """

    neutral: ClassVar[Mapping[str, Any]] = {}

    def settled(self, rng: torch.Generator) -> Self:
        """Return the defence as one device runs it: every strength a single number."""
        chosen: dict[str, Any] = {}
        for name in sorted(type(self).model_fields):
            value = getattr(self, name)
            if isinstance(value, tuple):
                chosen[name] = value[int(torch.randint(len(value), (), generator=rng))]
        return self.model_copy(update=chosen) if chosen else self

    @property
    def varying(self) -> tuple[str, ...]:
        """The settings in which devices differ."""
        return tuple(name for name in type(self).model_fields if isinstance(getattr(self, name), tuple))

    @property
    def protects(self) -> bool:
        """Whether a settled defence changes anything."""
        return not self.neutral or any(getattr(self, name) != value for name, value in self.neutral.items())

    @property
    def growth(self) -> float:
        """How many times as many examples a device trains on, on average over devices."""
        return 1.0


def average(value: float | tuple[float, ...]) -> float:
    """Return the mean strength of a population."""
    return sum(value) / len(value) if isinstance(value, tuple) else value


def single(value: Strength | tuple[Strength, ...]) -> Strength:
    """Return the strength of a settled defence. Raises FedprintError for a distribution."""
    if isinstance(value, tuple):
        raise FedprintError(f"the strength {value} is a distribution over devices; call settled() for one device")
    return value
