"""The first dummy images of a search."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor

Start = Literal["grey", "pattern", "random"]
"""grey: all pixels .5 (ours). pattern: a small random patch, tiled (the spn preset). random: N(0, 1) (deep leakage)."""

PATCHES = 4
"""Patches along each side of an image: 8 x 8 pixels of 32."""

JITTER = 0.02
"""Standard deviation of the pixels of several grey images: equal images would stay equal for ever."""


def start_images(kind: Start, count: int, shape: tuple[int, int, int], rng: Generator) -> Tensor:
    """Return ``count`` images (count, c, h, w) of one problem to begin with, float32."""
    channels, height, width = shape
    if kind == "grey":
        grey = torch.full((count, *shape), 0.5)
        return grey + JITTER * torch.randn(grey.shape, generator=rng) if count > 1 else grey
    if kind == "random":
        return torch.randn((count, *shape), generator=rng)
    sides = -(-height // PATCHES), -(-width // PATCHES)
    patch = torch.rand((count, channels, *sides), generator=rng)
    return patch.repeat(1, 1, PATCHES, PATCHES)[:, :, :height, :width]
