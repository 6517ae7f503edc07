"""Defences at point 1: on a device's own data, once, before training."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Generator

from fedprint.component import Component
from fedprint.types import Examples, FedprintError


class BkgRepl(Component):
    """``bkg-repl``: a fraction ``alpha`` of the user's examples is replaced by background (gradient-leaks, 6.2)."""

    name: Literal["bkg-repl"] = "bkg-repl"
    alpha: float = Field(ge=0, le=1)

    def on_data(self, examples: Examples, background: Examples, rng: Generator) -> Examples:
        """Return n examples, ``round(alpha * n)`` of them drawn from the background (without replacement if it can)."""
        n = len(examples["y"])
        replaced = round(self.alpha * n)
        if replaced == 0:
            return examples
        positions = torch.randperm(n, generator=rng)[:replaced]
        drawn = _draw(background, replaced, rng, self.name)
        out = {}
        for column in ("x", "y"):
            values = examples[column].clone()
            values[positions] = background[column][drawn].to(values)  # its type and place
            out[column] = values
        return out


def _draw(background: Examples, count: int, rng: Generator, name: str) -> torch.Tensor:
    available = len(background.get("y", ()))
    if available == 0:
        raise FedprintError(f"defences.{name}: this data set has no background examples; choose a source that has some")
    if count <= available:
        return torch.randperm(available, generator=rng)[:count]
    return torch.randint(available, (count,), generator=rng)
