"""Images of random pen strokes: what drawings have in common, from no data at all."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

_POINTS = 25
"""Points at which the pen touches the paper, along one stroke."""
_BLOCK = 50
"""Strokes drawn at a time: one takes ``_POINTS`` times the memory of its image."""
_LENGTH, _PEN, _INK = 0.65, (0.03, 0.055), 1.6
"""Longer side of a stroke and range of the pen's radius, over the image's shorter side; ink saturates at 1."""


def random_strokes(count: int, height: int, width: int, rng: Generator) -> Tensor:
    """Return images (count, 1, height, width) in [0, 1] of one centred stroke each, a random cubic Bezier curve."""
    side = min(height, width)
    t = torch.linspace(0, 1, _POINTS).unsqueeze(1)
    weights = torch.cat([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], dim=1)
    curves = weights @ torch.rand(count, 4, 2, generator=rng)  # (count, points, 2)
    extent = (curves.amax(1) - curves.amin(1)).amax(1).view(-1, 1, 1)
    middle = (torch.tensor([height, width]) - 1) / 2
    curves = (curves - curves.mean(1, keepdim=True)) * (_LENGTH * side / extent) + middle
    radii = side * (_PEN[0] + (_PEN[1] - _PEN[0]) * torch.rand(count, generator=rng))
    blocks = zip(torch.split(curves, _BLOCK), torch.split(radii, _BLOCK), strict=True)
    return torch.cat([_drawn(block, radius, height, width) for block, radius in blocks])


def _drawn(curves: Tensor, radii: Tensor, height: int, width: int) -> Tensor:
    """Return the ink (n, 1, h, w) of curves (n, points, 2): a Gaussian of the distance to the nearest point."""
    down = (curves[:, :, 0].unsqueeze(2) - torch.arange(height)).square()
    across = (curves[:, :, 1].unsqueeze(2) - torch.arange(width)).square()
    distance = (down.unsqueeze(3) + across.unsqueeze(2)).amin(1)
    ink = _INK * torch.exp(-distance / (2 * radii.view(-1, 1, 1).square()))
    return ink.clamp(max=1).unsqueeze(1)
