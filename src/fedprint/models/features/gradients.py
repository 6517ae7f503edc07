"""Oriented gradients: hand-made features of images that need no data, and a linear classifier on them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedprint.models.convnets import ImageClassifier
from fedprint.models.kernels.dense import DenseGradients

_BLOCK = 1024
"""Images at a time: the votes of one take ``orientations`` times its own memory."""
_FLOOR = 1e-3
"""Energy below which a cell counts as empty: its noise is not blown up to a unit norm."""


def oriented_gradients(images: Tensor, orientations: int, cells: int) -> Tensor:
    """Return the features (n, orientations * cells * cells) of images (n, channels, h, w) in [0, 1], of L2 norm 1.

    Histograms of signed gradient directions (Dalal and Triggs 2005) in ``cells`` x ``cells`` overlapping cells, each
    divided by the energy of its 3 x 3 neighbourhood. Square roots tame strong strokes, and each cell's mean over the
    directions is taken off: what all images have in common would fill a clipping norm and tell no class from another.
    An image without any gradient is all zeros.
    """
    return torch.cat([_features(part, orientations, cells) for part in torch.split(images, _BLOCK)])


def _features(images: Tensor, orientations: int, cells: int) -> Tensor:
    votes = _votes(images.mean(1), orientations)
    height, width = (_cells(size, cells).to(images) for size in votes.shape[2:])
    pooled = height @ votes @ width.T
    energy = functional.avg_pool2d(pooled.square().sum(1, keepdim=True), 3, stride=1, padding=1)
    histograms = (pooled / (energy + _FLOOR).sqrt()).sqrt().flatten(2)
    return functional.normalize((histograms - histograms.mean(1, keepdim=True)).flatten(1))


def _votes(grey: Tensor, orientations: int) -> Tensor:
    """Return each pixel's gradient magnitude (n, orientations, h, w), shared between its two nearest directions."""
    padded = functional.pad(grey, (1, 1, 1, 1))
    across = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / 2
    down = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / 2
    magnitude = torch.hypot(across, down)
    turn = torch.atan2(down, across) * (orientations / (2 * math.pi)) % orientations
    lower = turn.floor()
    share = turn - lower
    nearest = lower.long() % orientations
    votes = magnitude.new_zeros(len(grey), orientations, *grey.shape[1:])
    votes.scatter_(1, nearest.unsqueeze(1), (magnitude * (1 - share)).unsqueeze(1))
    return votes.scatter_add_(1, ((nearest + 1) % orientations).unsqueeze(1), (magnitude * share).unsqueeze(1))


def _cells(size: int, cells: int) -> Tensor:
    """Return the weight (cells, size) of each pixel in each cell: triangles that overlap by half."""
    width = size / cells
    centres = (torch.arange(cells) + 0.5) * width - 0.5
    return (1 - (torch.arange(size) - centres.unsqueeze(1)).abs() / width).clamp(min=0)


class LinearClassifier(ImageClassifier):
    """One linear layer without a bias on fixed features (b, d); it starts from zero."""

    initial_gain = 0.0

    def __init__(self, inputs: int, classes: int, multi_label: bool) -> None:
        super().__init__(multi_label=multi_label, centred=False)
        self.head = nn.Linear(inputs, classes, bias=False)

    def features(self, x: Tensor) -> Tensor:
        """Return the features (b, d) as they came."""
        return x

    def stacked_gradients(self) -> DenseGradients:
        """Return the gradients of a stack of such classifiers."""
        return DenseGradients(layers=("head",), activation="relu", centred=False, multi_label=self.multi_label)
