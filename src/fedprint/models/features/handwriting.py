"""Hand-made features of handwriting that need no data: oriented gradients of upright images of even size."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from fedprint.models.features.gradients import oriented_gradients
from fedprint.models.features.strokes import random_strokes
from fedprint.rng import torch_rng

_BLOCK = 1024
"""Images at a time."""
_STROKES = 1000
"""Random strokes whose mean features stand for what all drawings have in common."""
_ACROSS, _DOWN = 0.3, 0.4
"""Standard deviations of the ink to which an image is stretched, half of the way; the image spans -1 to 1."""
_FLOOR = 1e-4
"""Least mass and variance: an empty image stays as it is."""


def handwriting_gradients(images: Tensor, orientations: int, cells: int) -> Tensor:
    """Return features (n, orientations * cells * cells) of images (n, channels, h, w) in [0, 1], of L2 norm 1.

    Oriented gradients of the :func:`upright` images, less their mean over random strokes: what all drawings share would
    fill a clipping norm and tell no class from another. The strokes come from a constant seed and depend on no data.
    """
    common = _mean_of_strokes(images.shape[2], images.shape[3], orientations, cells).to(images)
    return functional.normalize(_plain(images, orientations, cells) - common)


def upright(images: Tensor) -> Tensor:
    """Return the images (n, 1, h, w) with their ink centred, its slant sheared away, and its size made more even.

    Each image is mapped by its own moments (LeCun et al. 1998 deskew MNIST so).
    """
    n, _, height, width = images.shape
    y, x = torch.meshgrid(
        torch.linspace(-1, 1, height).to(images), torch.linspace(-1, 1, width).to(images), indexing="ij"
    )
    ink = images.mean(1)
    ink_share = ink / ink.sum((1, 2), keepdim=True).clamp(min=_FLOOR)
    centre_x, centre_y = ((ink_share * axis).sum((1, 2)) for axis in (x, y))
    from_x, from_y = x - centre_x.view(-1, 1, 1), y - centre_y.view(-1, 1, 1)
    down = (ink_share * from_y.square()).sum((1, 2)).clamp(min=_FLOOR)
    slant = ((ink_share * from_x * from_y).sum((1, 2)) / down).clamp(-1, 1)
    across = (ink_share * (from_x - slant.view(-1, 1, 1) * from_y).square()).sum((1, 2)).clamp(min=_FLOOR)
    scale_x = (across.sqrt() / _ACROSS).clamp(0.4, 1.6).sqrt()
    scale_y = (down.sqrt() / _DOWN).clamp(0.6, 1.6).sqrt()
    zero = torch.zeros_like(slant)
    rows = (torch.stack([scale_x, slant * scale_y, centre_x], 1), torch.stack([zero, scale_y, centre_y], 1))
    grid = functional.affine_grid(torch.stack(rows, 1), [n, 1, height, width], align_corners=True)
    return functional.grid_sample(ink.unsqueeze(1), grid, align_corners=True)


def _plain(images: Tensor, orientations: int, cells: int) -> Tensor:
    parts = torch.split(images, _BLOCK)
    return torch.cat([oriented_gradients(upright(part), orientations, cells) for part in parts])


@lru_cache(maxsize=8)
def _mean_of_strokes(height: int, width: int, orientations: int, cells: int) -> Tensor:
    """Return the mean features (d,) of random strokes."""
    return _plain(random_strokes(_STROKES, height, width, torch_rng(0, "strokes")), orientations, cells).mean(0)
