"""The things shown on album photos: twelve small drawings made of signed distances, each spanning [-1, 1].

A drawing is a list of parts from back to front; a part is a signed distance (k, h, w), negative inside, and an RGB
colour in [0, 1]. ``u`` points right and ``v`` down, both (k, h, w) float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Part = tuple[Array, tuple[float, float, float]]
Drawing = Callable[[Array, Array], list[Part]]

_DARK = (0.16, 0.15, 0.2)
_WHITE = (0.97, 0.96, 0.93)


def _disc(u: Array, v: Array, centre: tuple[float, float], radius: float) -> Array:
    return np.asarray(np.hypot(u - centre[0], v - centre[1]) - radius)


def _box(u: Array, v: Array, centre: tuple[float, float], half: tuple[float, float]) -> Array:
    return np.maximum(np.abs(u - centre[0]) - half[0], np.abs(v - centre[1]) - half[1])


def _ellipse(u: Array, v: Array, centre: tuple[float, float], half: tuple[float, float]) -> Array:
    return np.asarray((np.hypot((u - centre[0]) / half[0], (v - centre[1]) / half[1]) - 1) * min(half))


def _triangle(u: Array, v: Array, tip: tuple[float, float], base: float, half: float) -> Array:
    """Isosceles, with its tip at ``tip``, its base at height ``base`` and half width ``half`` there."""
    height = base - tip[1]
    slope = half / abs(height)
    side = (np.abs(u - tip[0]) - slope * np.abs(v - tip[1])) / np.hypot(1, slope)
    inside = 1 if height > 0 else -1
    ends = np.maximum(inside * (v - base), inside * (tip[1] - v))
    return np.asarray(np.maximum(side, ends))


def sun(u: Array, v: Array) -> list[Part]:
    """A yellow disc with twelve rays."""
    rays = np.hypot(u, v) - 0.72 - 0.2 * np.cos(12 * np.arctan2(v, u))
    return [(rays, (1.0, 0.72, 0.2)), (_disc(u, v, (0, 0), 0.56), (1.0, 0.87, 0.25))]


def moon(u: Array, v: Array) -> list[Part]:
    """A pale crescent."""
    return [(np.maximum(_disc(u, v, (0, 0), 0.85), -_disc(u, v, (0.42, -0.2), 0.7)), (0.98, 0.96, 0.72))]


def tree(u: Array, v: Array) -> list[Part]:
    """Three tiers of dark green on a brown trunk."""
    trunk = _box(u, v, (0, 0.8), (0.14, 0.2))
    tiers = [_triangle(u, v, (0, -1 + 0.42 * i), -0.2 + 0.42 * i, 0.45 + 0.16 * i) for i in range(3)]
    greens = ((0.25, 0.62, 0.35), (0.18, 0.53, 0.3), (0.12, 0.43, 0.26))
    return [(trunk, (0.45, 0.3, 0.18)), *((tiers[i], greens[i]) for i in (2, 1, 0))]


def flower(u: Array, v: Array) -> list[Part]:
    """Six magenta petals round a yellow heart, on a stem."""
    stem = _box(u, v, (0, 0.6), (0.07, 0.4))
    petals = np.hypot(u, v + 0.3) - 0.48 - 0.17 * np.cos(6 * np.arctan2(v + 0.3, u))
    return [(stem, (0.2, 0.58, 0.28)), (petals, (0.93, 0.35, 0.62)), (_disc(u, v, (0, -0.3), 0.2), (1.0, 0.85, 0.3))]


def house(u: Array, v: Array) -> list[Part]:
    """Cream walls, a red roof, a door and a window."""
    return [
        (_box(u, v, (0, 0.42), (0.68, 0.5)), (0.97, 0.88, 0.7)),
        (_triangle(u, v, (0, -0.95), -0.02, 0.95), (0.78, 0.24, 0.2)),
        (_box(u, v, (-0.25, 0.6), (0.16, 0.32)), (0.42, 0.26, 0.17)),
        (_box(u, v, (0.3, 0.36), (0.17, 0.17)), (0.45, 0.72, 0.88)),
    ]


def boat(u: Array, v: Array) -> list[Part]:
    """A white and an orange sail above a navy hull."""
    hull = np.maximum(_box(u, v, (0, 0.66), (1.0, 0.26)), np.abs(u) + 0.8 * v - 1.28)
    left = np.maximum(_triangle(u, v, (0.04, -0.95), 0.3, 0.85), u + 0.04)
    right = np.maximum(_triangle(u, v, (0.06, -0.65), 0.3, 0.7), 0.08 - u)
    return [(hull, (0.14, 0.22, 0.48)), (left, _WHITE), (right, (0.98, 0.58, 0.22))]


def car(u: Array, v: Array) -> list[Part]:
    """A red body with a cabin, windows and two wheels."""
    cabin = _ellipse(u, v, (0, -0.05), (0.58, 0.52))
    glass = np.maximum(np.maximum(_ellipse(u, v, (0, -0.05), (0.44, 0.38)), v - 0.0), 0.05 - np.abs(u))
    wheels = np.minimum(_disc(u, v, (-0.52, 0.52), 0.25), _disc(u, v, (0.52, 0.52), 0.25))
    hubs = np.minimum(_disc(u, v, (-0.52, 0.52), 0.1), _disc(u, v, (0.52, 0.52), 0.1))
    body = np.maximum(cabin, v - 0.3)
    red = (0.86, 0.2, 0.22)
    return [
        (body, red),
        (_box(u, v, (0, 0.26), (0.95, 0.25)), red),
        (glass, (0.75, 0.9, 0.97)),
        (wheels, _DARK),
        (hubs, _WHITE),
    ]


def ball(u: Array, v: Array) -> list[Part]:
    """A white ball with blue sectors."""
    disc = _disc(u, v, (0, 0), 0.85)
    sectors = np.maximum(disc, 0.35 * np.sin(3 * np.arctan2(v + 0.2, u + 0.2)))
    return [(disc, _WHITE), (sectors, (0.15, 0.45, 0.85)), (_disc(u, v, (-0.2, -0.2), 0.16), (0.98, 0.8, 0.25))]


def cat(u: Array, v: Array) -> list[Part]:
    """A grey head with pointed ears, green eyes and a pink nose."""
    grey = (0.46, 0.45, 0.5)
    ears = np.minimum(_triangle(u, v, (-0.6, -0.98), 0.0, 0.42), _triangle(u, v, (0.6, -0.98), 0.0, 0.42))
    eyes = _ellipse(np.abs(u), v, (0.32, 0.02), (0.19, 0.17))
    pupils = _ellipse(np.abs(u), v, (0.32, 0.02), (0.07, 0.15))
    return [
        (ears, grey),
        (_ellipse(u, v, (0, 0.18), (0.86, 0.7)), grey),
        (eyes, (0.72, 0.9, 0.35)),
        (pupils, _DARK),
        (_triangle(u, v, (0, 0.45), 0.24, 0.14), (0.98, 0.62, 0.65)),
    ]


def fish(u: Array, v: Array) -> list[Part]:
    """An orange fish with a white stripe, facing left."""
    tail = np.maximum(np.abs(v) - 0.9 * (u - 0.32), u - 0.98) * 0.75
    body = _ellipse(u, v, (-0.18, 0), (0.78, 0.52))
    stripe = np.maximum(body, np.abs(u + 0.12) - 0.11)
    orange = (0.98, 0.5, 0.14)
    return [(tail, orange), (body, orange), (stripe, _WHITE), (_disc(u, v, (-0.62, -0.1), 0.1), _DARK)]


def balloon(u: Array, v: Array) -> list[Part]:
    """A violet balloon with a shine, on a string."""
    string = np.maximum(np.abs(u - 0.08 * np.sin(7 * v)) - 0.035, np.abs(v - 0.7) - 0.3)
    knot = _triangle(u, v, (0, 0.3), 0.5, 0.14)
    violet = (0.56, 0.3, 0.8)
    shine = _ellipse(u, v, (-0.22, -0.58), (0.12, 0.18))
    return [
        (string, _DARK),
        (knot, violet),
        (_ellipse(u, v, (0, -0.34), (0.58, 0.66)), violet),
        (shine, (0.85, 0.72, 0.97)),
    ]


def cup(u: Array, v: Array) -> list[Part]:
    """A teal cup with a handle and coffee in it."""
    handle = np.abs(_disc(u, v, (0.58, 0.15), 0.3)) - 0.1
    body = np.maximum(_box(u, v, (-0.1, 0.2), (0.66, 0.6)), np.hypot(u + 0.1, v - 0.0) - 0.9)
    teal = (0.12, 0.6, 0.6)
    rim = _ellipse(u, v, (-0.1, -0.4), (0.66, 0.2))
    return [
        (handle, teal),
        (body, teal),
        (rim, (0.82, 0.95, 0.93)),
        (_ellipse(u, v, (-0.1, -0.38), (0.54, 0.13)), (0.35, 0.2, 0.12)),
    ]


DRAWINGS: Mapping[str, Drawing] = {
    "sun": sun,
    "moon": moon,
    "tree": tree,
    "flower": flower,
    "house": house,
    "boat": boat,
    "car": car,
    "ball": ball,
    "cat": cat,
    "fish": fish,
    "balloon": balloon,
    "cup": cup,
}
"""Class name -> drawing; the order is the order of the labels."""
