"""The networks of the spn paper: DLNet, AlexNet and VGG16 for small images (papers.md 4.5; spn, tables 4 to 6)."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedprint.models.components import AlexNet, DlNet, Vgg16
from fedprint.models.convnets import ImageClassifier
from fedprint.models.mobilenet import ConvNorm
from fedprint.types import FedprintError

DLNET_STRIDES = (2, 2, 1, 1)
ALEXNET_CHANNELS = (64, 192, 384, 256, 256)
ALEXNET_KERNELS = (5, 5, 3, 3, 3)
ALEXNET_POOLED = (1, 2, 5)
VGG16_STAGES = (64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)


class DlNetClassifier(ImageClassifier):
    """Four smooth 5x5 convolutions and one fully connected layer: twice differentiable, as gradient matching needs."""

    def __init__(self, shape: tuple[int, int, int], classes: int, multi_label: bool, config: DlNet) -> None:
        super().__init__(multi_label=multi_label, centred=config.centred)
        self.bound = config.bound
        self.activation = torch.sigmoid if config.activation == "sigmoid" else torch.tanh
        widths = (shape[0], *(config.channels,) * 4)
        for number, ((inputs, outputs), stride) in enumerate(zip(pairwise(widths), DLNET_STRIDES, strict=True), 1):
            self.add_module(f"conv{number}", nn.Conv2d(inputs, outputs, 5, stride, padding=2))
        height, width = (-(-side // 4) for side in shape[1:])
        self.head = nn.Linear(config.channels * height * width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Activations (b, channels * h/4 * w/4) of images (b, c, h, w) in [0, 1]."""
        h = self.pixels(x)
        for number in range(1, 5):
            h = self.activation(self.get_submodule(f"conv{number}")(h))
        return h.flatten(1)

    @torch.no_grad()
    def reset(self, rng: torch.Generator) -> None:
        """Draw weights and biases uniform in +-bound."""
        if self.bound is None:
            super().reset(rng)
            return
        for parameter in self.parameters():
            parameter.uniform_(-self.bound, self.bound, generator=rng)


class AlexNetClassifier(ImageClassifier):
    """Five convolutions, pools after the first, second and fifth, one hidden layer, one head."""

    initial_gain = math.sqrt(6)

    def __init__(self, shape: tuple[int, int, int], classes: int, multi_label: bool, config: AlexNet) -> None:
        super().__init__(multi_label=multi_label, centred=config.centred)
        height, width = _after_pools("alexnet", shape, 3)
        widths = (shape[0], *ALEXNET_CHANNELS)
        for number, ((inputs, outputs), kernel) in enumerate(zip(pairwise(widths), ALEXNET_KERNELS, strict=True), 1):
            self.add_module(f"conv{number}", nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2))
        self.fc1 = nn.Linear(widths[-1] * height * width, config.hidden)
        self.head = nn.Linear(config.hidden, classes)

    def features(self, x: Tensor) -> Tensor:
        """Penultimate activations (b, hidden) of images (b, c, h, w) in [0, 1]."""
        h = self.pixels(x)
        for number in range(1, len(ALEXNET_CHANNELS) + 1):
            h = self.get_submodule(f"conv{number}")(h)
            h = functional.relu(functional.max_pool2d(h, 2) if number in ALEXNET_POOLED else h)
        return functional.relu(self.fc1(h.flatten(1)))


class Vgg16Classifier(ImageClassifier):
    """Thirteen 3x3 convolutions with group norm in five stages, a 2x2 pool after each, one hidden layer, one head."""

    channels_last = False
    initial_gain = math.sqrt(6)

    def __init__(self, shape: tuple[int, int, int], classes: int, multi_label: bool, config: Vgg16) -> None:
        super().__init__(multi_label=multi_label, centred=config.centred)
        height, width = _after_pools("vgg16", shape, len(VGG16_STAGES))
        channels = shape[0]
        for stage, widths in enumerate(VGG16_STAGES, 1):
            for number, outputs in enumerate(widths, 1):
                layer = ConvNorm(channels, outputs, 3, 1, depthwise=False, groups=config.groups)
                self.add_module(f"conv{stage}_{number}", layer)
                channels = outputs
        self.fc1 = nn.Linear(channels * height * width, config.hidden)
        self.head = nn.Linear(config.hidden, classes)

    def features(self, x: Tensor) -> Tensor:
        """Penultimate activations (b, hidden) of images (b, c, h, w) in [0, 1]."""
        h = self.pixels(x)
        for stage, widths in enumerate(VGG16_STAGES, 1):
            for number in range(1, len(widths) + 1):
                h = self.get_submodule(f"conv{stage}_{number}")(h)
            h = functional.max_pool2d(h, 2)
        return functional.relu(self.fc1(h.flatten(1)))

    @torch.no_grad()
    def reset(self, rng: torch.Generator) -> None:
        """Draw convolutions by He's rule, the two last layers normal with a standard deviation of .01."""
        super().reset(rng)
        for layer in (self.fc1, self.head):
            layer.weight.normal_(std=0.01, generator=rng)


def _after_pools(name: str, shape: tuple[int, int, int], pools: int) -> tuple[int, int]:
    """Return the sides of the last map after ``pools`` 2x2 pools. Raises FedprintError for images too small."""
    height, width = (side >> pools for side in shape[1:])
    if not height or not width:
        least = 2**pools
        size = f"{shape[1]} x {shape[2]}"
        raise FedprintError(f"model.name: {name} needs {least} x {least} pixels, the images have {size}; choose dlnet")
    return height, width
