"""Defences of the number of examples that a device sends beside its update (no paper has them).

Every server of weighted FedAvg sees this number, and where users hold different amounts it names them.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field

from fedprint.data.examples import take
from fedprint.defences.on_data import draw
from fedprint.defences.strength import Defence
from fedprint.types import Examples


class CoarseCounts(Defence):
    """``coarse-counts`` (ours): a device names a power of ``base`` instead of its count; null: all name 1.

    The server weights devices by what they name, so that null is the plain mean. The length of an update, and how many
    examples are left for its last batch, still depend on the true number: ``same-size`` hides these too.
    """

    name: Literal["coarse-counts"] = "coarse-counts"
    base: float | None = Field(default=2.0, gt=1)

    def on_count(self, count: int) -> int:
        """Return the power of ``base`` that is nearest to a count of at least 1, on a logarithmic scale."""
        if self.base is None:
            return 1
        return max(1, round(self.base ** round(math.log(count, self.base))))


class SameSize(Defence):
    """``same-size`` (ours): every device trains on ``examples`` examples, drawn from its own, each as often as another.

    With fewer examples a device repeats its own, with more it leaves some out, the same ones in every round. Then all
    name the same count, take equally many steps, and have equally large last batches.
    """

    name: Literal["same-size"] = "same-size"
    examples: int = Field(ge=1)

    def on_data(self, examples: Examples, background: Examples, rng: torch.Generator) -> Examples:
        """Return ``self.examples`` of the examples; the background is not read."""
        chosen = draw(torch.arange(len(examples["y"])), self.examples, rng)
        return take(examples, chosen)
