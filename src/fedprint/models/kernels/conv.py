"""Gradients of many small convolutional networks at once, written out by hand: no graph, and one call for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedprint.models.kernels.dense import DenseGradients, Gradient
from fedprint.types import Examples, Params

aten = torch.ops.aten


@dataclass(frozen=True, kw_only=True)
class ConvGradients:
    """Gradients of ``conv1`` and ``conv2``, 5x5 with a 2x2 max-pool and ReLU each, and of the ``dense`` layers above.

    The convolutions of a stack are groups of one, with the channels innermost: each call of the library costs as much
    as several images, and a stack shares it. Stacks whose activations leave the cache gain no more (LOG.md). Inputs are
    mapped from [0, 1] to [-1, 1] where ``centred``.
    """

    dense: DenseGradients
    centred: bool

    @torch.no_grad()
    def __call__(self, params: Params, batch: Examples, mask: Tensor) -> tuple[Mapping[str, Gradient], Tensor]:
        """Return the gradients of k networks and their mean losses (k,).

        ``params`` and the columns of ``batch`` are stacked, (k, ...) and (k, b, ...); ``mask`` (k, b) is 1 for the
        examples that count.
        """
        x = 2 * batch["x"] - 1 if self.centred else batch["x"]
        first = _Convolved.of(_innermost(x), params["conv1.weight"], params["conv1.bias"])
        second = _Convolved.of(first.out, params["conv2.weight"], params["conv2.bias"])
        features = second.out.view(mask.shape[1], len(mask), -1, *second.out.shape[2:]).transpose(0, 1)
        gradients, losses, slopes = self.dense.of_inputs(params, {"x": features.flatten(2), "y": batch["y"]}, mask)
        slopes = torch.bmm(slopes, params[f"{self.dense.layers[0]}.weight"]).view(features.shape)
        slopes, weight, bias = second.backward(_innermost(slopes), through=True)
        gradients |= {"conv2.weight": weight, "conv2.bias": bias}
        _, weight, bias = first.backward(slopes, through=False)
        return gradients | {"conv1.weight": weight, "conv1.bias": bias}, losses


def _innermost(x: Tensor) -> Tensor:
    """Return images (k, b, c, h, w) of k networks as (b, k * c, h, w), the channels of all networks innermost."""
    k, b, c, h, w = x.shape
    return x.new_empty(b, h, w, k, c).copy_(x.permute(1, 3, 4, 0, 2)).flatten(3).permute(0, 3, 1, 2)


@dataclass(frozen=True, kw_only=True)
class _Convolved:
    """The convolutions of ``x`` by k networks, their max-pool with the places ``at`` of the maxima, and its ReLU."""

    x: Tensor
    weight: Tensor
    convolved: Tensor
    at: Tensor
    out: Tensor

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, bias: Tensor) -> _Convolved:
        convolved = functional.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=2, groups=len(weight))
        pooled, at = aten.max_pool2d_with_indices(convolved, [2, 2], [2, 2])
        return cls(x=x, weight=weight, convolved=convolved, at=at, out=pooled.relu_())

    def backward(self, slopes: Tensor, *, through: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients with respect to input (none unless ``through``), weight and bias."""
        slopes = aten.threshold_backward(slopes, self.out, 0)
        slopes = aten.max_pool2d_with_indices_backward(
            slopes, self.convolved, [2, 2], [2, 2], [0, 0], [1, 1], False, self.at
        )
        k, weight = len(self.weight), self.weight.flatten(0, 1)
        below, of_weight, of_bias = aten.convolution_backward(
            slopes, self.x, weight, [len(weight)], [1, 1], [2, 2], [1, 1], False, [0, 0], k, [through, True, True]
        )
        return below, of_weight.view(self.weight.shape), of_bias.view(k, -1)
