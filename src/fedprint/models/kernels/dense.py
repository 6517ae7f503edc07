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
        gradients, losses, _ = self.of_inputs(params, {**batch, "x": self.inputs(batch["x"])}, mask)
        return gradients, losses

    def of_inputs(self, params: Params, batch: Examples, mask: Tensor) -> tuple[dict[str, Gradient], Tensor, Tensor]:
        """Return gradients, losses (k,) and the gradients (k, b, out) with respect to the first layer's outputs.

        ``batch["x"]`` (k, b, in) is what that layer is given.
        """
        x, weights = batch["x"], mask / mask.sum(1, keepdim=True).clamp(min=1)
        bias, first = f"{self.layers[0]}.bias", f"{self.layers[0]}.weight"
        gradients, slopes, scores = self.above_first(params, _linear(params, self.layers[0], x), batch["y"], weights)
        if bias in params:
            gradients[bias] = slopes.sum(1)
        gradients[first] = Outer(left=slopes, right=x)
        return gradients, (self.losses(scores, batch["y"]) * weights).sum(1), slopes

    def inputs(self, x: Tensor) -> Tensor:
        """Return what the first layer is given, (k, b, in), of examples (k, b, ...)."""
        flat = x.flatten(2)
        return 2 * flat - 1 if self.centred else flat

    def above_first(
        self, params: Params, z: Tensor, y: Tensor, weights: Tensor
    ) -> tuple[dict[str, Gradient], Tensor, Tensor]:
        """Return the gradients of all layers above the first, that of the first one's outputs, and the scores.

        ``z`` (k, b, out) are these outputs, which may be overwritten; ``weights`` (k, b) are the shares of the examples
        in their network's loss.
        """
        outputs = [z]
        for layer in self.layers[1:]:
            outputs[-1] = self._activated(outputs[-1])
            outputs.append(_linear(params, layer, outputs[-1]))
        scores = outputs.pop()
        slopes = self._slopes(scores, y).mul_(weights.unsqueeze(2))
        gradients: dict[str, Gradient] = {}
        for layer, given in zip(reversed(self.layers[1:]), reversed(outputs), strict=True):
            gradients[f"{layer}.weight"] = Outer(left=slopes, right=given)
            if f"{layer}.bias" in params:
                gradients[f"{layer}.bias"] = slopes.sum(1)
            slopes = self._through_activation(torch.bmm(slopes, params[f"{layer}.weight"]), given)
        return gradients, slopes, scores

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the losses (k, b) of scores (k, b, classes)."""
        if self.multi_label:
            return functional.binary_cross_entropy_with_logits(scores, y, reduction="none").mean(2)
        return -scores.log_softmax(2).gather(2, y.unsqueeze(2)).squeeze(2)

    def _slopes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the gradients of the losses with respect to the scores."""
        if self.multi_label:
            return (scores.sigmoid() - y).div_(y.shape[2])
        chosen = y.unsqueeze(2)
        return scores.softmax(2).scatter_add_(2, chosen, scores.new_full((), -1.0).expand(chosen.shape))

    def _activated(self, z: Tensor) -> Tensor:
        return z.relu_() if self.activation == "relu" else z.sigmoid_()

    def _through_activation(self, slopes: Tensor, activated: Tensor) -> Tensor:
        """Return slopes with respect to an activation's input, given its output."""
        relu, aten = self.activation == "relu", torch.ops.aten
        before: Tensor = (
            aten.threshold_backward(slopes, activated, 0) if relu else aten.sigmoid_backward(slopes, activated)
        )
        return before


class FirstLayer:
    """The first layer of k networks that begin with the same weights and take one epoch of plain steps.

    A step adds multiples of a network's own examples to its weight. So inner products of the examples, taken once, give
    the outputs after any number of steps, and weights are neither read nor written before the last one. The bias is the
    weight of an input of 1.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, x: Tensor, batch: int) -> None:
        """Begin with ``weight`` (out, in), ``bias`` (out,) and inputs ``x`` (k, n, in), ``batch`` of n at a step."""
        self._x, self._batch, self._start = x, batch, 0
        self._begun = functional.linear(x.flatten(0, 1), weight, bias).view(*x.shape[:2], -1)
        self._products = torch.bmm(x[:, batch:], x[:, :-batch].mT)  # with the examples of earlier steps
        if bias is not None:
            self._products += 1
        self._multiples = torch.empty_like(self._begun)

    def outputs(self) -> Tensor:
        """Return the outputs (k, batch, out) for the batch of this step."""
        start, end = self._start, self._start + self._batch
        begun = self._begun[:, start:end]
        if not start:
            return begun
        products = self._products[:, start - self._batch : end - self._batch, :start]
        return torch.baddbmm(begun, products, self._multiples[:, :start])

    def step(self, slopes: Tensor, lr: float) -> None:
        """Take the step against the gradients ``slopes`` (k, batch, out) of the outputs."""
        start, self._start = self._start, self._start + self._batch
        torch.mul(slopes, -lr, out=self._multiples[:, start : self._start])

    def moved(self) -> tuple[Tensor, Tensor]:
        """Return what all steps have added to the weights (k, out, in) and to the biases (k, out)."""
        return torch.bmm(self._multiples.mT, self._x), self._multiples.sum(1)


def _linear(params: Params, layer: str, x: Tensor) -> Tensor:
    """Return what each network's layer makes of its own inputs: (k, b, in) to (k, b, out)."""
    weight, bias = params[f"{layer}.weight"].mT, params.get(f"{layer}.bias")
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)
