"""A defence: a random part of an update's coordinates never leaves the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from fedprint.defences.on_update import UpdateDefenceBase
from fedprint.defences.strength import Fraction, single
from fedprint.types import Params


class DropCoordinates(UpdateDefenceBase):
    """``drop-coordinates``: each coordinate is set to 0 with probability ``share``, anew in every round.

    ``share`` 0 changes nothing. A list of shares describes a population: each device draws one of them.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"share": 0}

    name: Literal["drop-coordinates"] = "drop-coordinates"
    share: Fraction | Annotated[tuple[Fraction, ...], Field(min_length=1)] = 0.5

    def on_device(self, update: Params, rng: torch.Generator) -> Params:
        """Return the update with zeros; tensors keep their shapes."""
        share = single(self.share)
        return {name: t * (torch.rand(t.shape, generator=rng) >= share) for name, t in update.items()}
