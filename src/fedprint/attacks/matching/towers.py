"""Two towers and a distance: the papers' network for pairs (gradient-leaks, Appendix B; v3, figures 3b and 3c)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedprint.attacks.learner import Learner, train
from fedprint.models.base import initialise
from fedprint.models.batches import ShuffledBatches
from fedprint.types import Examples, Floats, Ints, Scores

WIDTH = 128


@dataclass(frozen=True, kw_only=True)
class TowerSettings:
    """Constants of one training. The papers give none but the optimiser; training stops early on held-out pairs."""

    depth: int = 1
    epochs: int = 30
    batch_size: int = 128
    patience: int = 5
    lr: float = 1e-3


class Towers(Learner):
    """Match probability of two inputs: FC-128 ReLU layers each side, element-wise L1 distance, FC-1, sigmoid.

    Siamese: one width of input, shared weights. Cross-modal: two widths, a tower for each. No dropout.
    """

    def __init__(self, inputs: Sequence[int], settings: TowerSettings, rng: torch.Generator) -> None:
        """``inputs``: one width (shared weights) or two."""
        super().__init__()
        self.config = settings
        self.towers = nn.ModuleList(_tower(width, settings.depth) for width in inputs)
        self.out = nn.Linear(WIDTH, 1)
        initialise(self, rng)

    def embed(self, x: Tensor, side: int) -> Tensor:
        """Common space (b, 128) of the inputs (b, width) of the left (0) or right (1) side."""
        embedded: Tensor = self.towers[side % len(self.towers)](x)
        return embedded

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Logits (b,) that both belong together."""
        distance = (self.embed(left, 0) - self.embed(right, 1)).abs()
        out: Tensor = self.out(distance)[:, 0]
        return out

    def loss(self, batch: Examples) -> Tensor:
        """Binary cross-entropy."""
        return functional.binary_cross_entropy_with_logits(self(batch["left"], batch["right"]), batch["same"])

    def configure_optimizers(self) -> Any:
        """RMSProp 1e-3."""
        return torch.optim.RMSprop(self.parameters(), lr=self.config.lr)


def _tower(inputs: int, depth: int) -> nn.Sequential:
    widths = [inputs, *[WIDTH] * depth]
    layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*(module for pair in layers for module in pair))


class PairBatches(ShuffledBatches):
    """Batches of pairs: positions are shuffled, and rows are gathered batch by batch."""

    def __init__(self, sides: tuple[Tensor, Tensor], pairs: Ints, same: Any, size: int, rng: torch.Generator) -> None:
        """``sides``: left (a, d) and right (b, e); ``pairs`` (n, 2) positions in them; ``same`` (n,) bool."""
        columns = {"pair": torch.from_numpy(pairs), "same": torch.from_numpy(np.asarray(same, np.float32))}
        super().__init__(columns, size, rng)
        self.sides = sides

    def to(self, device: torch.device) -> Self:
        """Move the pairs and both sides."""
        self.sides = (self.sides[0].to(device), self.sides[1].to(device))
        return super().to(device)

    def __iter__(self) -> Any:
        """Yield ``left`` (b, d), ``right`` (b, e) and ``same`` (b,)."""
        for batch in super().__iter__():
            left, right = batch["pair"].T
            yield {"left": self.sides[0][left], "right": self.sides[1][right], "same": batch["same"]}


@dataclass(frozen=True, kw_only=True)
class PairData:
    """Pairs (n, 2) of positions with "same owner" (n,)."""

    pairs: Ints
    same: Any


def fit_towers(
    sides: tuple[Floats, Floats], taught: PairData, held: PairData, settings: TowerSettings, rng: torch.Generator
) -> Towers:
    """Train on pairs and stop on held-out pairs; ``sides`` (a, d) and (b, e), the same array twice shares weights."""
    shared = sides[0] is sides[1]
    module = Towers([x.shape[1] for x in sides[: 1 if shared else 2]], settings, rng)
    tensors = (_tensor(sides[0]), _tensor(sides[1]))
    return train(
        module,
        PairBatches(tensors, taught.pairs, taught.same, settings.batch_size, rng),
        PairBatches(tensors, held.pairs, held.same, 4096, rng),
        epochs=settings.epochs,
        patience=settings.patience,
    )


def score_pairs(module: Towers, sides: tuple[Floats, Floats], pairs: Ints) -> Scores:
    """Return the match logits (q,) of pairs (q, 2) of positions in the sides; each row is embedded once."""
    with torch.no_grad():
        left, right = (module.embed(_tensor(x), side) for side, x in enumerate(sides))
        distance = (left[pairs[:, 0]] - right[pairs[:, 1]]).abs()
        scores: Scores = module.out(distance)[:, 0].double().numpy()
    return scores


def _tensor(x: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))
