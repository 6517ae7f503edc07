"""A defence in one file: every coordinate of an update is rounded to a grid before it leaves the device.

To use it, copy this file to src/fedprint/defences/rounding.py and import ``Rounding`` in
src/fedprint/kinds/components.py, the registry of components, and add it to ``Defence`` there. Then::

    fedprint run quickstart --set 'defences=[{name: rounding, step: 0.01}]'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from torch import Generator

from fedprint.defences.on_update import UpdateDefenceBase
from fedprint.defences.strength import Amount, single
from fedprint.types import Params


class Rounding(UpdateDefenceBase):
    """``rounding``: each coordinate becomes the nearest multiple of ``step``.

    ``step`` 0 changes nothing. A list of steps describes a population: each device draws one of them.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"step": 0}

    name: Literal["rounding"] = "rounding"
    step: Amount | Annotated[tuple[Amount, ...], Field(min_length=1)]

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return the rounded update; tensors keep their shapes."""
        step = single(self.step)
        return update if step == 0 else {name: step * (tensor / step).round() for name, tensor in update.items()}
