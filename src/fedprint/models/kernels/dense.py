"""Gradients of many fully connected networks at once, written out by hand: no graph, and no gradient of a weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedprint.types import Examples, Params


@dataclass(frozen=True, kw_only=True)
class Outer:
    """The gradient (k, out, in) of k weights as its factors: ``left`` (k, b, out) and ``right`` (k, b, in).

    A plain step adds the product to the weight in place, which spares writing and reading the gradient.
    """

    left: Tensor
    right: Tensor

    def whole(self) -> Tensor:
        """Return the product."""
        return torch.bmm(self.left.mT, self.right)


Gradient = Tensor | Outer


def whole(gradient: Gradient) -> Tensor:
    """Return a gradient as one tensor."""
    return gradient.whole() if isinstance(gradient, Outer) else gradient


@dataclass(frozen=True, kw_only=True)
class DenseGradients:
    """Gradients of a chain of linear ``layers`` (their names) with an ``activation`` between each two of them.

    Inputs are flattened, and mapped from [0, 1] to [-1, 1] where ``centred``. The loss is cross-entropy, or the mean
    binary cross-entropy over classes where ``multi_label``.
    """

    layers: tuple[str, ...]
    activation: Literal["relu", "sigmoid"]
    centred: bool
    multi_label: bool

    @torch.no_grad()
    def __call__(self, params: Params, batch: Examples, mask: Tensor) -> tuple[Mapping[str, Gradient], Tensor]:
        """Return the gradients of k networks and their mean losses (k,).

        ``params`` and the columns of ``batch`` are stacked, (k, ...) and (k, b, ...); ``mask`` (k, b) is 1 for the
        examples that count.
        """
        x = batch["x"].flatten(2)
        inputs = [2 * x - 1 if self.centred else x]
        for layer in self.layers[:-1]:
            inputs.append(self._activated(_linear(params, layer, inputs[-1])))
        losses, slopes = self._loss(_linear(params, self.layers[-1], inputs[-1]), batch["y"])
        weights = mask / mask.sum(1, keepdim=True).clamp(min=1)
        slopes *= weights.unsqueeze(2)
        gradients: dict[str, Gradient] = {}
        for layer, given in zip(reversed(self.layers), reversed(inputs), strict=True):
            gradients[f"{layer}.weight"] = Outer(left=slopes, right=given)
            if f"{layer}.bias" in params:
                gradients[f"{layer}.bias"] = slopes.sum(1)
            if layer != self.layers[0]:
                slopes = self._through_activation(torch.bmm(slopes, params[f"{layer}.weight"]), given)
        return gradients, (losses * weights).sum(1)

    def _loss(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (k, b) of scores (k, b, classes) and their gradients with respect to the scores."""
        if self.multi_label:
            losses = functional.binary_cross_entropy_with_logits(scores, y, reduction="none").mean(2)
            return losses, (scores.sigmoid() - y) / y.shape[2]
        log_p = scores.log_softmax(2)
        chosen = y.unsqueeze(2)
        return -log_p.gather(2, chosen).squeeze(2), log_p.exp().scatter_add_(
            2, chosen, -torch.ones_like(log_p[..., :1])
        )

    def _activated(self, z: Tensor) -> Tensor:
        return z.relu_() if self.activation == "relu" else z.sigmoid_()

    def _through_activation(self, slopes: Tensor, activated: Tensor) -> Tensor:
        """Return slopes with respect to an activation's input, given its output."""
        relu, aten = self.activation == "relu", torch.ops.aten
        before: Tensor = (
            aten.threshold_backward(slopes, activated, 0) if relu else aten.sigmoid_backward(slopes, activated)
        )
        return before


def _linear(params: Params, layer: str, x: Tensor) -> Tensor:
    """Return what each network's layer makes of its own inputs: (k, b, in) to (k, b, out)."""
    weight, bias = params[f"{layer}.weight"].mT, params.get(f"{layer}.bias")
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)
