"""Captions of album photos: what is on the photo, in words that its owner prefers."""

from __future__ import annotations

import numpy as np

from fedprint.data.drawn.render import SCENES
from fedprint.data.drawn.shapes import DRAWINGS

OPENERS = (
    "a photo of", "look at", "here is", "we saw", "today we found", "i love", "just", "remember",
    "finally", "such", "one more picture of", "guess who took",
)  # fmt: skip
ADJECTIVES = (
    "lovely", "little", "big", "bright", "funny", "old", "new", "beautiful", "tiny", "quiet", "colourful", "great",
    "sweet", "strange", "favourite", "perfect",
)  # fmt: skip
CLOSERS = (".", "!", "...", "?", "", ", so nice", ", again", " with friends", " with the family", ", wow!")


def write_captions(rng: np.random.Generator, bias: float, things: np.ndarray, scene: np.ndarray) -> tuple[str, ...]:
    """Return one caption per photo from its things (n, m; -1 for none) and its scene (n,).

    The writer's preferences for openers, adjectives and closers are drawn once and scaled by ``bias``.
    """
    n = len(scene)
    openers, closers = _words(rng, OPENERS, bias, n), _words(rng, CLOSERS, bias, n)
    adjectives = _words(rng, ADJECTIVES, bias, n)
    names, scenes = tuple(DRAWINGS), tuple(SCENES)
    rows = zip(openers, adjectives, things.tolist(), scene.tolist(), closers, strict=True)
    return tuple(
        f"{opener} {_listing([names[thing] for thing in shown if thing >= 0], adjective)} {scenes[setting]}{closer}"
        for opener, adjective, shown, setting, closer in rows
    )


def _words(rng: np.random.Generator, words: tuple[str, ...], bias: float, n: int) -> list[str]:
    preference = 2.0 * bias * rng.standard_normal(len(words))
    return [words[index] for index in np.argmax(preference + rng.gumbel(size=(n, len(words))), axis=1).tolist()]


def _listing(names: list[str], adjective: str) -> str:
    first, *others = names
    listed = [f"a {adjective} {first}", *(f"a {name}" for name in others)]
    return " and ".join([", ".join(listed[:-1]), listed[-1]]) if others else listed[0]
