"""Training of the learned attacks with Lightning and early stopping, and the papers' network with one hidden layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import Logger
from torch import Tensor, nn
from torch.nn import functional

from fedprint.models.base import initialise, quiet_trainer
from fedprint.models.batches import ShuffledBatches
from fedprint.types import Examples


class Learner(lightning.LightningModule, ABC):
    """A network with a loss, trained on shuffled batches of prior data and stopped early on held-out batches.

    Each batch of Lightning is a whole epoch, and this class makes the steps inside it: for such small networks
    Lightning's bookkeeping costs as much as the gradient of a batch.
    """

    automatic_optimization = False

    @abstractmethod
    def loss(self, batch: Examples) -> Tensor:
        """Return the mean loss of a batch, a scalar."""

    def held_loss(self, batch: Examples) -> Tensor:
        """Return the loss of a held-out batch on which training stops."""
        return self.loss(batch)

    def training_step(self, epoch: ShuffledBatches, index: int) -> None:
        """Take a step of the optimiser, and of its schedule if there is one, for each batch of the epoch."""
        optimiser = cast(Any, self.optimizers(use_pl_optimizer=False))
        schedule = cast(Any, self.lr_schedulers())
        losses = []
        for batch in epoch:
            optimiser.zero_grad()
            loss = self.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if schedule is not None:
                schedule.step()
            losses.append(loss.detach())
        if self.trainer.loggers:
            self.log("loss", torch.stack(losses).mean(), on_step=False, on_epoch=True, batch_size=1)

    def validation_step(self, batch: Examples, index: int) -> None:
        """Log the held-out loss."""
        self.log("held_out", self.held_loss(batch), batch_size=len(next(iter(batch.values()))))


@dataclass(frozen=True, kw_only=True)
class MlpSettings:
    """Constants of one training: the papers' by default, AdamW where ``adam``."""

    hidden: int = 128
    dropout: float = 0.2
    epochs: int = 100
    batch_size: int = 32
    patience: int = 10
    adam: bool = False


class OneHiddenLayer(Learner):
    """The papers' network (gradient-leaks, 4.1.2): a hidden layer with ReLU and dropout; a subclass adds the heads.

    The subclass calls :meth:`initialise_all` once it has its heads.
    """

    def __init__(self, inputs: int, settings: MlpSettings) -> None:
        super().__init__()
        self.config = settings
        self.hidden = nn.Linear(inputs, settings.hidden)

    def initialise_all(self, rng: torch.Generator) -> None:
        """Draw all weights, and the generator of the dropout."""
        self.rng = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=rng)))
        initialise(self, rng)

    def activations(self, x: Tensor) -> Tensor:
        """Return the hidden layer (b, hidden) of updates (b, inputs), with dropout in training."""
        h = functional.relu(self.hidden(x))
        if self.training:
            keep = 1 - self.config.dropout  # a generator of this module: torch's dropout uses the global one
            h = h * (torch.rand(h.shape, generator=self.rng) < keep).to(h.device) / keep
        return h

    def configure_optimizers(self) -> Any:
        """SGD .01, momentum .9, learning rate / (1 + 1e-6 steps); or AdamW 1e-3."""
        if self.config.adam:
            return torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-2)
        optimiser = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (1 + 1e-6 * step))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


Trained = TypeVar("Trained", bound=Learner)


def train(
    module: Trained,
    batches: ShuffledBatches,
    held: ShuffledBatches,
    *,
    epochs: int,
    patience: int,
    logger: Logger | None = None,
) -> Trained:
    """Train for at most ``epochs``, stop after ``patience`` epochs without a smaller held-out loss; return the module.

    ``logger`` receives the losses by epoch, for a fit that is reported; it changes no number.
    """
    trainer = quiet_trainer(epochs, EarlyStopping("held_out", patience=patience), logger=logger)
    trainer.fit(module, batches.whole_epochs(), held.loader())
    return module.eval()
