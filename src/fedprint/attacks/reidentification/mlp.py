"""The papers' re-identification network as a LightningModule (gradient-leaks, 4.1.2: FC-128, ReLU, dropout .2)."""

from __future__ import annotations

import numpy as np
import torch
from lightning.pytorch.loggers import Logger
from torch import Tensor, nn
from torch.nn import functional

from fedprint.attacks.features import in_span
from fedprint.attacks.learner import MlpSettings, OneHiddenLayer, train
from fedprint.models.batches import ShuffledBatches
from fedprint.types import Doubles, Examples, Floats, Ints


class ReidentificationMlp(OneHiddenLayer):
    """``delta -> user``: one hidden layer, softmax over the users."""

    def __init__(self, inputs: int, options: int, settings: MlpSettings, rng: torch.Generator) -> None:
        super().__init__(inputs, settings)
        self.out = nn.Linear(settings.hidden, options)
        self.initialise_all(rng)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (b, options) of updates (b, inputs)."""
        out: Tensor = self.out(self.activations(x))
        return out

    def loss(self, batch: Examples) -> Tensor:
        """Cross-entropy."""
        return functional.cross_entropy(self(batch["x"]), batch["y"])


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

    A tenth of the rows (at least one) is held out to stop early. Where d exceeds n the network reads coordinates in the
    span of ``x``, at a fraction of the cost: gradient steps of a first layer never leave that span. Only the part of
    ``ask`` outside the span, which the random initial weights would read, is ignored. ``logger`` receives the losses by
    epoch.
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
