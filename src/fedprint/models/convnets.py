"""Classifiers of images: convolutional ones, and one without convolutions."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedprint.models.base import FedModule
from fedprint.models.components import FullyConnected, SmallCnn
from fedprint.models.kernels.conv import ConvGradients
from fedprint.models.kernels.dense import DenseGradients
from fedprint.types import Examples


class ImageClassifier(FedModule):
    """Features of images and a linear head; single- or multi-label.

    ``bound``: all parameters start uniform in +-bound, None where :meth:`FedModule.reset` applies.
    """

    head: nn.Linear
    bound: float | None = None

    def __init__(self, *, multi_label: bool, centred: bool) -> None:
        super().__init__()
        self.multi_label = multi_label
        self.centred = centred

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Penultimate activations (b, hidden) of images (b, c, h, w) in [0, 1]."""

    def pixels(self, x: Tensor) -> Tensor:
        """Images as the first layer sees them: from -1 to 1 where ``centred``."""
        return 2 * x - 1 if self.centred else x

    def scores(self, x: Tensor) -> Tensor:
        """Class scores (b, classes)."""
        out: Tensor = self.head(self.features(x))
        return out

    def per_example_loss(self, batch: Examples) -> Tensor:
        """Cross-entropy, or the mean binary cross-entropy over classes: (b,)."""
        return self.loss_of(self.scores(batch["x"]), batch["y"])

    def loss_of(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss (b,) of class scores (b, classes)."""
        if self.multi_label:
            return functional.binary_cross_entropy_with_logits(scores, y, reduction="none").mean(1)
        return functional.cross_entropy(scores, y, reduction="none")

    def per_example_utility(self, batch: Examples) -> Tensor:
        """Hits (b,) of the arg max, or the scores (b, classes) where mean AP needs them."""
        scores = self.scores(batch["x"])
        return scores if self.multi_label else (scores.argmax(1) == batch["y"]).to(torch.float32)


class ConvClassifier(ImageClassifier):
    """Two 5x5 convolutions with 2x2 max-pools, one hidden layer or none, one head; single- or multi-label."""

    initial_gain = math.sqrt(6)

    def __init__(self, shape: tuple[int, int, int], classes: int, multi_label: bool, config: SmallCnn) -> None:
        super().__init__(multi_label=multi_label, centred=config.centred)
        channels, height, width = shape
        first, second = config.channels
        self.conv1 = nn.Conv2d(channels, first, 5, padding=2)
        self.conv2 = nn.Conv2d(first, second, 5, padding=2)
        pooled = second * (height // 4) * (width // 4)
        self.fc1 = nn.Linear(pooled, config.hidden) if config.hidden else None
        self.head = nn.Linear(config.hidden or pooled, classes)

    def features(self, x: Tensor) -> Tensor:
        """Penultimate activations (b, hidden) of images (b, c, h, w) in [0, 1]."""
        # pooling before the ReLU gives the same values and touches a quarter of the elements
        h = functional.relu(functional.max_pool2d(self.conv1(self.pixels(x)), 2))
        h = functional.relu(functional.max_pool2d(self.conv2(h), 2))
        return h.flatten(1) if self.fc1 is None else functional.relu(self.fc1(h.flatten(1)))

    def stacked_gradients(self) -> ConvGradients:
        """Return the gradients of a stack of such networks."""
        layers = ("head",) if self.fc1 is None else ("fc1", "head")
        dense = DenseGradients(layers=layers, activation="relu", centred=False, multi_label=self.multi_label)
        return ConvGradients(dense=dense, centred=self.centred)


class MlpClassifier(ImageClassifier):
    """One hidden layer on all pixels, one head."""

    def __init__(self, inputs: int, classes: int, multi_label: bool, config: FullyConnected) -> None:
        super().__init__(multi_label=multi_label, centred=config.centred)
        self.initial_gain = math.sqrt(6) if config.activation == "relu" else 1.0
        self.activation = functional.relu if config.activation == "relu" else torch.sigmoid
        self.fc1 = nn.Linear(inputs, config.hidden)
        self.head = nn.Linear(config.hidden, classes)

    def features(self, x: Tensor) -> Tensor:
        """Hidden activations (b, hidden) of images (b, c, h, w) in [0, 1]."""
        h: Tensor = self.activation(self.fc1(self.pixels(x).flatten(1)))
        return h

    def stacked_gradients(self) -> DenseGradients:
        """Return the gradients of a stack of such networks."""
        return DenseGradients(
            layers=("fc1", "head"),
            activation="relu" if self.activation is functional.relu else "sigmoid",
            centred=self.centred,
            multi_label=self.multi_label,
        )
