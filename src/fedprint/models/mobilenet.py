"""MobileNet v1 (Howard et al. 2017, arXiv:1704.04861, table 1) without running statistics."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedprint.models.components import MobileNet
from fedprint.models.convnets import ImageClassifier
from fedprint.models.weights import copy_weights, read_weights

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Output channels at width 1 and stride of each depthwise separable block; before them a 3x3 stem: 32, stride 2.

The table prints stride 2 for the last block too, where its own feature maps stay 7 x 7: a misprint.
"""

EPSILON = 1e-5


class ConvNorm(nn.Module):
    """A convolution without bias, its normalisation and a ReLU as one layer, whose three tensors share a prefix.

    ``scale`` is stored as its difference from 1, so that zero is neutral, as for every other vector of a model.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, *, depthwise: bool, groups: int) -> None:
        super().__init__()
        self.stride, self.padding = stride, kernel // 2
        self.conv_groups = inputs if depthwise else 1
        self.groups = groups
        self.weight = nn.Parameter(torch.empty(outputs, inputs // self.conv_groups, kernel, kernel))
        self.scale = nn.Parameter(torch.empty(outputs))
        self.shift = nn.Parameter(torch.empty(outputs))
        if not groups:
            # constants, no running statistics: no pass through the network changes them
            self.register_buffer("mean", torch.zeros(outputs))
            self.register_buffer("var", torch.ones(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, inputs, h, w) to (b, outputs, h / stride, w / stride)."""
        h = functional.conv2d(x, self.weight, None, self.stride, self.padding, 1, self.conv_groups)
        if self.groups:
            return functional.relu(functional.group_norm(h, self.groups, 1 + self.scale, self.shift, EPSILON))
        gain = (1 + self.scale) * torch.rsqrt(self.get_buffer("var") + EPSILON)
        offset = self.shift - self.get_buffer("mean") * gain
        return functional.relu(h * gain[:, None, None] + offset[:, None, None])


class Separable(nn.Module):
    """A depthwise 3x3 convolution and a pointwise one, each with its normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: tuple[int, int]) -> None:
        super().__init__()
        self.depthwise = ConvNorm(inputs, inputs, 3, stride, depthwise=True, groups=groups[0])
        self.pointwise = ConvNorm(inputs, outputs, 1, 1, depthwise=False, groups=groups[1])

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, inputs, h, w) to (b, outputs, h / stride, w / stride)."""
        out: Tensor = self.pointwise(self.depthwise(x))
        return out


class MobileNetClassifier(ImageClassifier):
    """27 convolutional layers, global average pool, one head: layers ``stem``, ``block1.depthwise`` ..., ``head``."""

    channels_last = False
    initial_gain = math.sqrt(6)

    def __init__(self, shape: tuple[int, int, int], classes: int, multi_label: bool, config: MobileNet) -> None:
        super().__init__(multi_label=multi_label, centred=config.centred)
        self.weights = config.weights
        stem, *strides = strides_for(min(shape[1:]), config.least_map)
        width = _scaled(32, config.width)
        self.stem = ConvNorm(shape[0], width, 3, stem, depthwise=False, groups=_groups(width, config))
        for number, ((channels, _), stride) in enumerate(zip(BLOCKS, strides, strict=True), 1):
            outputs = _scaled(channels, config.width)
            groups = _groups(width, config), _groups(outputs, config)
            self.add_module(f"block{number}", Separable(width, outputs, stride, groups))
            width = outputs
        self.head = nn.Linear(width, classes)
        self._set_constants(*shape[1:])

    def _set_constants(self, height: int, width: int) -> None:
        """Set frozen variances for the start from noise: the share of each kernel that lies on its map, on average.

        At the edges of small maps kernels see zeros. Uncorrected, the signal fades through 27 layers.
        """
        for layer in self.modules():
            if isinstance(layer, ConvNorm):
                kernel, stride = layer.weight.shape[-1], layer.stride
                if not layer.groups:
                    layer.get_buffer("var").fill_(seen(height, kernel, stride) * seen(width, kernel, stride))
                height, width = -(-height // stride), -(-width // stride)

    def features(self, x: Tensor) -> Tensor:
        """Average-pooled activations (b, 1024 * width) of images (b, c, h, w) in [0, 1]."""
        h = self.stem(self.pixels(x))
        for number in range(1, len(BLOCKS) + 1):
            h = self.get_submodule(f"block{number}")(h)
        out: Tensor = h.mean((2, 3))
        return out

    def reset(self, rng: torch.Generator) -> None:
        """Draw the initial parameters, then copy those of ``weights`` over them where a file is given."""
        super().reset(rng)
        if self.weights is not None:
            copy_weights(self, read_weights(self.weights), self.weights)


def strides_for(side: int, least_map: int) -> tuple[int, ...]:
    """Return the strides of stem and blocks for images of ``side`` pixels.

    They are those of the paper, but as many of the first 2s as necessary are 1, so that the last feature map keeps
    ``least_map`` pixels a side. This is usual for small images: five halvings of 32 pixels would leave a single one.
    """
    strides = [2, *(stride for _, stride in BLOCKS)]
    for position, stride in enumerate(strides):
        if last_map(side, strides) >= least_map:
            break
        strides[position] = 1 if stride == 2 else stride
    return tuple(strides)


def seen(side: int, kernel: int, stride: int) -> float:
    """Return the share of a kernel's rows that lie on a map of ``side`` rows, not in its padding: (0, 1]."""
    first = range(-(kernel // 2), side - kernel // 2, stride)
    return sum(0 <= start + row < side for start in first for row in range(kernel)) / (kernel * len(first))


def last_map(side: int, strides: list[int]) -> int:
    """Return the side of the last feature map."""
    for stride in strides:
        side = -(-side // stride)
    return side


def _scaled(channels: int, width: float) -> int:
    return max(8, round(channels * width))


def _groups(channels: int, config: MobileNet) -> int:
    """Return the largest number of groups, at most ``config.groups``, that divides the channels; 0 for frozen."""
    if config.normalisation == "frozen":
        return 0
    return next(groups for groups in range(config.groups, 0, -1) if channels % groups == 0)
