"""The network of ``softmax``."""

from __future__ import annotations

import math

from torch import Tensor, nn

from fedprint.models.convnets import ImageClassifier


class SoftmaxNetwork(ImageClassifier):
    """One linear layer on all pixels of images of ``shape``."""

    def __init__(self, shape: tuple[int, ...], classes: int, multi_label: bool) -> None:
        super().__init__(multi_label=multi_label, centred=True)
        self.head = nn.Linear(math.prod(shape), classes)

    def features(self, x: Tensor) -> Tensor:
        """Return all pixels (b, d) of images (b, c, h, w) in [0, 1]."""
        return self.pixels(x).flatten(1)
