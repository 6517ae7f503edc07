"""The federated model as a LightningModule without hidden state."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor, nn

from fedprint.types import Examples


class FedModule(lightning.LightningModule):
    """A model that every backend can train: per-example losses, no running statistics, no hidden randomness.

    The federation calls ``model(batch)`` for the losses (b,). Lightning's Trainer uses the same losses for the
    centralised baseline. ``private_prefixes`` names parameters that never leave a device (SPN's private head).
    """

    private_prefixes: tuple[str, ...] = ()
    central_lr: float = 0.1

    def scores(self, x: Tensor) -> Tensor:
        """Return unnormalised class scores, (b, classes) or (b, length, classes)."""
        raise NotImplementedError(f"{type(self).__name__} must define scores")

    def per_example_loss(self, batch: Examples) -> Tensor:
        """Return the loss of each example: (b,)."""
        raise NotImplementedError(f"{type(self).__name__} must define per_example_loss")

    def per_example_utility(self, batch: Examples) -> Tensor:
        """Return what the utility metric needs of each example: hits (b,) or (b, length), or scores (b, classes)."""
        raise NotImplementedError(f"{type(self).__name__} must define per_example_utility")

    def forward(self, batch: Examples) -> Tensor:
        """Return :meth:`per_example_loss`; the name that Fabric and ``torch.func.functional_call`` dispatch on."""
        return self.per_example_loss(batch)

    def training_step(self, batch: Examples, batch_index: int) -> Tensor:
        """Mean loss of a batch, for the centralised baseline."""
        return self.per_example_loss(batch).mean()

    def configure_optimizers(self) -> Any:
        """Plain SGD, as on the devices."""
        return torch.optim.SGD(self.parameters(), lr=self.central_lr)


def initialise(model: nn.Module, rng: torch.Generator) -> None:
    """Draw every parameter anew from ``rng``: matrices and kernels uniform in +-1/sqrt(fan in), vectors likewise.

    Embeddings are standard normal. These are torch's defaults; torch's own code reads the global generator, here the start of a federation depends on its seed only.
    """
    for module in model.modules():
        own = dict(module.named_parameters(recurse=False))
        weights = [p for p in own.values() if p.dim() > 1]
        fan_in = max((p[0].numel() for p in weights), default=1)
        bound = fan_in**-0.5
        for parameter in own.values():
            with torch.no_grad():
                if isinstance(module, nn.Embedding):
                    parameter.normal_(generator=rng)
                else:
                    parameter.uniform_(-bound, bound, generator=rng)
