"""What the learned attacks share: how Lightning trains them, and when it stops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar, cast

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import Logger
from torch import Tensor

from fedprint.models.base import quiet_trainer
from fedprint.models.batches import ShuffledBatches
from fedprint.types import Examples


class Learner(lightning.LightningModule, ABC):
    """A network with a loss, trained on shuffled batches of prior data and stopped early on others.

    What Lightning calls a batch is a whole epoch, and the steps inside it are ours: on networks as small as these its
    bookkeeping costs as much as the gradient of a batch.
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
    """Train for at most ``epochs``, ending after ``patience`` without a smaller held-out loss; return it to be used.

    ``logger`` takes the losses by epoch, for a fit that is reported; it changes no number.
    """
    trainer = quiet_trainer(epochs, EarlyStopping("held_out", patience=patience), logger=logger)
    trainer.fit(module, batches.whole_epochs(), held.loader())
    return module.eval()
