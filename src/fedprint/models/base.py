"""The federated model as a LightningModule without hidden state."""

from __future__ import annotations

import copy
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import lightning
import torch
from torch import Tensor, nn

from fedprint.lab.gpus import gpu_count
from fedprint.models.kernels.conv import ConvGradients
from fedprint.models.kernels.dense import DenseGradients
from fedprint.types import Examples

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger


class FedModule(lightning.LightningModule, ABC):
    """A model that every backend can train: per-example losses, no running statistics, no hidden randomness.

    The federation calls ``model(batch)`` for the losses (b,). Lightning's Trainer uses the same losses for the
    centralised baseline. ``private_prefixes`` names parameters that never leave a device (SPN's private head).
    ``channels_last``: on a CPU its convolutions are faster with the channels innermost (not where group norm follows).
    ``replayable``: a GPU may capture a training step and replay it (CUDA graphs). Set it to False where the losses read
    a tensor's value on the host (``.item()``, ``if tensor``).
    """

    private_prefixes: tuple[str, ...] = ()
    channels_last: bool = True
    replayable: bool = True
    initial_gain: float = 1.0
    central_lr: float = 0.1

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """Return unnormalised class scores, (b, classes) or (b, length, classes)."""

    @abstractmethod
    def per_example_loss(self, batch: Examples) -> Tensor:
        """Return the loss of each example: (b,)."""

    @abstractmethod
    def per_example_utility(self, batch: Examples) -> Tensor:
        """Return each example's input of the utility metric: hits (b,) or (b, length), or scores (b, classes)."""

    def reset(self, rng: torch.Generator) -> None:
        """Set the initial parameters; they depend on ``rng`` only, unless a model starts from trained weights."""
        initialise(self, rng, self.initial_gain)

    def forward(self, batch: Examples) -> Tensor:
        """Return :meth:`per_example_loss`; the name that ``torch.func.functional_call`` dispatches on."""
        return self.per_example_loss(batch)

    def for_vmap(self) -> FedModule:
        """Return a copy in which each layer with a special form for ``torch.func.vmap`` takes that form."""
        copied = copy.deepcopy(self)
        for module in copied.modules():
            if isinstance(getattr(module, "for_vmap", None), bool):
                module.for_vmap = True  # type: ignore[assignment]
        return copied

    def stacked_gradients(self) -> ConvGradients | DenseGradients | None:
        """Return hand-written gradients of a stack of such networks; None where ``vmap`` has to do."""
        return None

    def compact(self, examples: Examples) -> tuple[Examples, Mapping[str, Tensor]]:
        """Return examples that name only the rows (m,) of some parameters that training on them reads, and these rows.

        The other rows have no gradient. The returned examples count rows from the first of those returned.
        """
        return examples, {}

    def public_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that a device shares: all but those under ``private_prefixes``."""
        private = tuple(f"{prefix}." for prefix in self.private_prefixes)
        return {name: p for name, p in self.named_parameters() if not private or not name.startswith(private)}

    def training_step(self, batch: Examples, batch_index: int) -> Tensor:
        """Mean loss of a batch, for the centralised baseline."""
        loss = self.per_example_loss(batch).mean()
        if self._trainer is not None and self._trainer.loggers:
            self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(next(iter(batch.values()))))
        return loss

    def configure_optimizers(self) -> Any:
        """Plain SGD, as on the devices."""
        return torch.optim.SGD(self.parameters(), lr=self.central_lr)


def initialise(model: nn.Module, rng: torch.Generator, gain: float = 1.0) -> None:
    """Draw every parameter anew from ``rng``: weights uniform in +-gain / sqrt(fan in), biases zero, embeddings normal.

    ``gain`` sqrt(6) is He's rule for ReLU networks, 1 is torch's default. torch's own initialisers read the global
    generator; here the start of a federation depends on its seed only.
    """
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                _draw(parameter, isinstance(module, nn.Embedding), gain, rng)


@torch.no_grad()
def _draw(parameter: nn.Parameter, embedding: bool, gain: float, rng: torch.Generator) -> None:
    if embedding:
        parameter.normal_(generator=rng)
    elif parameter.dim() == 1:
        parameter.zero_()
    else:
        bound = gain * parameter[0].numel() ** -0.5
        parameter.uniform_(-bound, bound, generator=rng)


def quiet_trainer(epochs: int, *callbacks: lightning.Callback, logger: Logger | None = None) -> lightning.Trainer:
    """Return a Trainer that writes no files and shows no bars; only a ``logger``, if given, gets its metrics.

    It trains on a GPU where this process sees one, and leaves the model on the CPU. A stage sees the GPUs that its job
    may use, none under ``accelerator: cpu`` (lab/gpus.py). A logger (:class:`fedprint.models.curves.PipeLogger` for
    curves) changes no number of the fit.
    """
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    return lightning.Trainer(
        accelerator="cuda" if gpu_count() else "cpu",
        devices=1,
        max_epochs=epochs,
        callbacks=list(callbacks),
        logger=logger or False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
