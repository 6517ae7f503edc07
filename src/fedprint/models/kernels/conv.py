"""Gradients of a small convolutional network, written out by hand: autograd's graph takes a sixth of its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedprint.types import Examples

aten = torch.ops.aten


@dataclass(frozen=True, kw_only=True)
class ConvGradients:
    """Gradients of two 5x5 convolutions, each with a 2x2 max-pool and ReLU, and one or two linear layers.

    Inputs are mapped from [0, 1] to [-1, 1] where ``centred``. The loss is cross-entropy, or the mean binary
    cross-entropy over classes where ``multi_label``. The arithmetic is that of autograd.
    """

    centred: bool
    multi_label: bool

    @torch.no_grad()
    def __call__(self, parameters: Sequence[Tensor], batch: Examples) -> tuple[Tensor, list[Tensor]]:
        """Return the mean loss () and its gradients in the order of ``parameters``: weight, bias of each layer."""
        weights, biases = parameters[0::2], parameters[1::2]
        x = 2 * batch["x"] - 1 if self.centred else batch["x"]
        first = _Convolved.of(x, weights[0], biases[0])
        second = _Convolved.of(first.out, weights[1], biases[1])
        inputs = [second.out.flatten(1)]
        for weight, bias in zip(weights[2:-1], biases[2:-1], strict=True):
            inputs.append(functional.linear(inputs[-1], weight, bias).relu_())
        loss, slopes = self._loss(functional.linear(inputs[-1], weights[-1], biases[-1]), batch["y"])
        gradients: list[Tensor] = []  # last layer first, bias before weight
        for weight, given in zip(reversed(weights[2:]), reversed(inputs), strict=True):
            gradients += [slopes.sum(0), slopes.T @ given]
            slopes = slopes @ weight
            if given is not inputs[0]:
                slopes = aten.threshold_backward(slopes, given, 0)
        below, *found = second.backward(slopes.view(second.out.shape), weights[1], through=True)
        gradients += reversed(found)
        _, *found = first.backward(below, weights[0], through=False)
        gradients += reversed(found)
        return loss, gradients[::-1]

    def _loss(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss of scores (b, classes), and its gradient with respect to them."""
        if self.multi_label:
            loss = functional.binary_cross_entropy_with_logits(scores, y, reduction="none").mean(1).mean()
            return loss, (scores.sigmoid() - y) * (1 / len(y) / y.shape[1])
        log_p = scores.log_softmax(1)
        losses, total = aten.nll_loss_forward(log_p, y, None, 0, -1)
        shares = torch.full_like(losses, 1 / len(losses))
        slopes = aten.nll_loss_backward(shares, log_p, y, None, 0, -1, total)
        return losses.mean(), aten._log_softmax_backward_data(slopes, log_p, 1, log_p.dtype)


@dataclass(frozen=True, kw_only=True)
class _Convolved:
    """A convolution of ``x``, its max-pool with the places ``at`` of the maxima, and the ReLU ``out`` of that."""

    x: Tensor
    convolved: Tensor
    at: Tensor
    out: Tensor

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, bias: Tensor) -> _Convolved:
        convolved = functional.conv2d(x, weight, bias, padding=2)
        pooled, at = aten.max_pool2d_with_indices(convolved, [2, 2], [2, 2])
        return cls(x=x, convolved=convolved, at=at, out=pooled.relu_())

    def backward(self, slopes: Tensor, weight: Tensor, *, through: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients with respect to input (none unless ``through``), weight and bias."""
        slopes = slopes.contiguous(memory_format=torch.channels_last)
        slopes = aten.threshold_backward(slopes, self.out, 0)
        slopes = aten.max_pool2d_with_indices_backward(
            slopes, self.convolved, [2, 2], [2, 2], [0, 0], [1, 1], False, self.at
        )
        found: tuple[Tensor, Tensor, Tensor] = aten.convolution_backward(
            slopes, self.x, weight, [len(weight)], [1, 1], [2, 2], [1, 1], False, [0, 0], 1, [through, True, True]
        )
        return found
