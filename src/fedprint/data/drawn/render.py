"""Scenes to pixels: a soft background, things from back to front, then the photographer's camera."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from fedprint.data.drawn.shapes import DRAWINGS

SIDE = 32
"""Height and width of a photo in pixels."""

_CHUNK = 256  # photos per pass: the float planes of one pass stay in the cache
_LUMA = np.array([0.3, 0.59, 0.11], dtype=np.float32)

SCENES: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "on the beach": ((120, 190, 235), (205, 232, 240), (236, 214, 160)),
    "in the meadow": ((140, 200, 245), (225, 240, 235), (135, 190, 100)),
    "at dusk": ((92, 82, 150), (245, 165, 130), (95, 85, 110)),
    "in the snow": ((165, 190, 220), (225, 235, 245), (240, 244, 250)),
    "at home": ((225, 205, 190), (240, 225, 205), (175, 125, 95)),
    "by the lake": ((150, 205, 230), (220, 235, 225), (85, 150, 180)),
    "in the city": ((175, 190, 205), (220, 220, 215), (130, 132, 140)),
    "in autumn": ((190, 205, 215), (250, 225, 185), (205, 130, 70)),
}
"""Scene -> colours (0 to 255) at the top of the sky, at the horizon, and of the ground."""


@dataclass(frozen=True, kw_only=True)
class Photos:
    """Everything that determines n photos; the m things of each are drawn in order. All arrays are float32 or int64.

    ``things`` (n, m) class index or -1, ``centre`` (n, m, 2) in [-1, 1], ``size`` (n, m) half extent in the same
    unit, ``tilt`` (n, m) radians, ``tone`` (n, m) brightness factor; ``scene`` (n,), ``horizon`` (n,) in [-1, 1],
    ``wave`` (n, 2) phase and height; camera: ``gain`` (n, 3), ``saturation``, ``contrast``, ``vignette`` and
    ``grain`` (n,), ``noise`` (n,) the seed of the grain.
    """

    things: np.ndarray
    centre: np.ndarray
    size: np.ndarray
    tilt: np.ndarray
    tone: np.ndarray
    scene: np.ndarray
    horizon: np.ndarray
    wave: np.ndarray
    gain: np.ndarray
    saturation: np.ndarray
    contrast: np.ndarray
    vignette: np.ndarray
    grain: np.ndarray
    noise: np.ndarray

    def rows(self, start: int, stop: int) -> Photos:
        """Return the photos ``start`` to ``stop``."""
        return Photos(**{field.name: getattr(self, field.name)[start:stop] for field in fields(self)})


def render(photos: Photos) -> np.ndarray:
    """Return uint8 (n, 3, 32, 32); a photo depends on its own row only."""
    n = len(photos.scene)
    pieces = [_render_chunk(photos.rows(start, min(start + _CHUNK, n))) for start in range(0, n, _CHUNK)]
    return np.concatenate(pieces) if pieces else np.zeros((0, 3, SIDE, SIDE), dtype=np.uint8)


def _render_chunk(photos: Photos) -> np.ndarray:
    canvas = _background(photos)
    for slot in range(photos.things.shape[1]):
        for index, name in enumerate(DRAWINGS):
            rows = np.flatnonzero(photos.things[:, slot] == index)
            if len(rows):
                canvas[rows] = _draw(canvas[rows], name, photos, rows, slot)
    return _develop(canvas, photos)


def _grid() -> tuple[np.ndarray, np.ndarray]:
    axis = (np.arange(SIDE, dtype=np.float32) + 0.5) / SIDE * 2 - 1
    v, u = np.meshgrid(axis, axis, indexing="ij")
    return u, v


def _background(photos: Photos) -> np.ndarray:
    """Return float32 (n, 3, h, w): a sky that brightens to the horizon above a hilly, slowly darkening ground."""
    u, v = _grid()
    top, low, ground = (
        c[..., None, None] for c in (np.array(list(SCENES.values()), np.float32) / 255)[photos.scene].swapaxes(0, 1)
    )
    phase, height = photos.wave[:, 0, None, None], photos.wave[:, 1, None, None]
    line = photos.horizon[:, None, None] + height * np.sin(2.5 * u + phase)
    depth = np.clip((v + 1) / 1.6, 0, 1)
    sky = top + (low - top) * depth
    land = ground * (1.05 - 0.25 * np.clip(v - line, 0, 1))[:, None]
    edge = np.clip((v - line) * SIDE / 4 + 0.5, 0, 1)[:, None]
    return np.asarray(sky + (land - sky) * edge)


def _draw(canvas: np.ndarray, name: str, photos: Photos, rows: np.ndarray, slot: int) -> np.ndarray:
    """Return the canvases (k, 3, h, w) with one thing drawn over each, its edges smoothed over a pixel."""
    u, v = _grid()
    size, tilt = photos.size[rows, slot, None, None], photos.tilt[rows, slot, None, None]
    x = (u - photos.centre[rows, slot, 0, None, None]) / size
    y = (v - photos.centre[rows, slot, 1, None, None]) / size
    cos, sin = np.cos(tilt), np.sin(tilt)
    sharpness = size * SIDE / 2
    tone = photos.tone[rows, slot, None, None, None]
    for distance, colour in DRAWINGS[name](cos * x + sin * y, cos * y - sin * x):
        cover = np.clip(0.5 - distance * sharpness, 0, 1)[:, None]
        paint = np.array(colour, dtype=np.float32)[:, None, None] * tone
        canvas = canvas + (paint - canvas) * cover
    return canvas


def _develop(canvas: np.ndarray, photos: Photos) -> np.ndarray:
    """Return uint8 photos: saturation, contrast, white balance, vignette and grain applied to float32 canvases."""
    u, v = _grid()
    grey = np.tensordot(canvas, _LUMA, axes=([1], [0]))[:, None]
    image = grey + (canvas - grey) * photos.saturation[:, None, None, None]
    image = 0.5 + (image - 0.5) * photos.contrast[:, None, None, None]
    shade = 1 - photos.vignette[:, None, None, None] * ((u * u + v * v) / 2)
    image = image * photos.gain[:, :, None, None] * shade
    image += photos.grain[:, None, None, None] * _grains(photos.noise)
    return np.asarray(np.clip(image * 255 + 0.5, 0, 255), dtype=np.uint8)


def _grains(seeds: np.ndarray) -> np.ndarray:
    """Return float32 (n, 3, h, w) standard normal grain, each photo from its own seed."""
    shape = (3, SIDE, SIDE)
    return np.stack(
        [np.random.Generator(np.random.SFC64(int(seed))).standard_normal(shape, np.float32) for seed in seeds]
    )
