"""The papers' re-identification network as a LightningModule (gradient-leaks, 4.1.2: FC-128, ReLU, dropout .2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning.pytorch.loggers import Logger
from torch import Tensor, nn
from torch.nn import functional

from fedprint.attacks.features import in_span
from fedprint.attacks.learner import Learner, train
from fedprint.models.base import initialise
from fedprint.models.batches import ShuffledBatches
from fedprint.types import Doubles, Examples, Floats, Ints


@dataclass(frozen=True, kw_only=True)
class MlpSettings:
    """Constants of one training: the papers' by default, AdamW where ``adam``."""

    hidden: int = 128
    dropout: float = 0.2
    epochs: int = 100
    batch_size: int = 32
    patience: int = 10
    adam: bool = False


class ReidentificationMlp(Learner):
    """``delta -> user``: one hidden layer, softmax over the users."""

    def __init__(self, inputs: int, options: int, settings: MlpSettings, rng: torch.Generator) -> None:
        super().__init__()
        self.config = settings
        self.hidden = nn.Linear(inputs, settings.hidden)
        self.out = nn.Linear(settings.hidden, options)
        self.rng = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=rng)))
        initialise(self, rng)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (b, options) of updates (b, inputs)."""
        h = functional.relu(self.hidden(x))
        if self.training:
            keep = 1 - self.config.dropout  # drawn from our own generator: torch's dropout uses the global one
            h = h * (torch.rand(h.shape, generator=self.rng) < keep) / keep
        out: Tensor = self.out(h)
        return out

    def loss(self, batch: Examples) -> Tensor:
        """Cross-entropy."""
        return functional.cross_entropy(self(batch["x"]), batch["y"])

    def configure_optimizers(self) -> Any:
        """SGD .01, momentum .9, learning rate / (1 + 1e-6 steps); or AdamW 1e-3."""
        if self.config.adam:
            return torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-2)
        optimiser = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (1 + 1e-6 * step))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def fit_mlp(
    x: Floats,
    y: Ints,
    ask: Floats,
    options: int,
    settings: MlpSettings,
    rng: torch.Generator,
    logger: Logger | None = None,
) -> Doubles:
    """Train on prior updates ``x`` (n, d), labels ``y`` (n,), and return log-probabilities (q, options) of ``ask``.

    A tenth of the rows (at least one) is held out to stop early; they are prior updates as well. Where d exceeds n the
    network reads coordinates in the span of ``x``, at a fraction of the cost: gradient steps of a first layer never
    leave that span. Only what its random start adds to ``ask`` from outside the span is left out. ``logger`` takes the
    losses by epoch.
    """
    wide = x.shape[1]
    order = torch.randperm(len(y), generator=rng)
    held, kept = order[: max(1, len(y) // 10)], order[max(1, len(y) // 10) :]
    joined = in_span(np.concatenate([x, ask]), np.arange(len(x)))
    x, ask = joined[: len(x)], joined[len(x) :]
    xs, ys = torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y)
    module = ReidentificationMlp(x.shape[1], options, settings, rng)
    with torch.no_grad():
        module.hidden.weight *= (x.shape[1] / wide) ** 0.5  # as if drawn for all d inputs and then rotated
    train(
        module,
        ShuffledBatches({"x": xs[kept], "y": ys[kept]}, settings.batch_size, rng),
        ShuffledBatches({"x": xs[held], "y": ys[held]}, len(held), rng),
        epochs=settings.epochs,
        patience=settings.patience,
        logger=logger,
    )
    with torch.no_grad():
        scores: Doubles = module(torch.from_numpy(np.ascontiguousarray(ask))).log_softmax(1).double().numpy()
    return scores
