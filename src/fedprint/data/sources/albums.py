"""The embedded data set: photo albums of invented people.

A person has tastes (which things, which scenes), which drift over the years, a camera (white balance, saturation,
contrast, vignette, grain), habits of framing, a way of writing captions, and attributes that shift taste and camera.
``bias`` scales all of these: at 0 all photos of all people are draws from one distribution, and photos of an album have
nothing in common either; at 1 people are easy to recognise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from fedprint.component import Component
from fedprint.data.dataset import Dataset
from fedprint.data.drawn.captions import write_captions
from fedprint.data.drawn.render import SCENES, Photos, render
from fedprint.data.drawn.shapes import DRAWINGS
from fedprint.data.text import build_vocabulary, encode_sentences, token_ids
from fedprint.data.text_columns import CAPTION, encode_captions
from fedprint.rng import numpy_rng
from fedprint.types import User

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "age": ("young", "middle", "old"),
    "glasses": ("no", "yes"),
    "hair": ("dark", "fair", "red"),
}
"""Attribute -> names of its classes."""

MOST_THINGS = 4
"""Most things on one photo."""

_VERSION = 2  # part of the fingerprint: raise it when the same settings give other columns
_THINGS, _SCENES = len(DRAWINGS), len(SCENES)
_YEARS_IN_MINUTES = 2 * 365 * 24 * 60
_PHOTOS_PER_ALBUM = 10
_CAPTION_BYTES = 128  # fixed: a person's columns must not depend on who else there is
_LIFT = np.array([-0.25 if name in ("sun", "moon", "balloon") else 0.06 for name in DRAWINGS], dtype=np.float32)
_CENTRES = np.array(
    [
        [(0, 0.05), (0, 0), (0, 0), (0, 0)],
        [(-0.4, 0.12), (0.42, -0.02), (0, 0), (0, 0)],
        [(-0.45, 0.3), (0.45, 0.25), (0.02, -0.38), (0, 0)],
        [(-0.45, -0.35), (0.42, -0.4), (-0.42, 0.42), (0.45, 0.4)],
    ],
    dtype=np.float32,
)
_HAIR_TINTS = [np.array(rgb) for rgb in ((-0.05, 0.0, 0.06), (0.04, 0.04, -0.06), (0.07, -0.04, -0.02))]
_SIZES = np.array([0.7, 0.52, 0.46, 0.42], dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class Person:
    """The traits of a person, before ``bias`` scales them. Standard normal unless stated otherwise."""

    attributes: Mapping[str, int]
    taste: np.ndarray  # (2, things): at the first and at the last day
    scenes: np.ndarray  # (scenes,)
    gain: np.ndarray  # (3,)
    framing: np.ndarray  # (5,): right, down, closer, tilted, horizon
    camera: np.ndarray  # (4,): saturation, contrast, vignette, grain
    crowd: float  # more or fewer things


@dataclass(frozen=True, kw_only=True)
class Roll:
    """All photos of one person in order of time: ``t`` (n,) minutes, ``album`` (n,), ``captions`` n strings."""

    user_id: int
    person: Person
    photos: Photos
    t: np.ndarray
    album: np.ndarray
    captions: tuple[str, ...]


class Albums(Component):
    """Photo albums of ``users`` people with ``images`` photos each, and of ``background_users`` other people.

    People have numbers; those of the users begin at ``skip``, those of the background come after them.

    ``modality`` chooses what the users' devices hold: the photos (multi-label; each with its caption in the column
    ``caption``) or the captions alone (language model, with a vocabulary from the background's captions); both are of
    the same people. Needs no file. A person depends on the seed, the person's number, ``images`` and ``bias`` only.
    """

    name: Literal["albums"] = "albums"
    users: int = Field(default=40, ge=1)
    skip: int = Field(default=0, ge=0)
    images: int = Field(default=120, ge=1)
    bias: float = Field(default=0.6, ge=0, le=1)
    background_users: int = Field(default=20, ge=0)
    modality: Literal["images", "captions"] = "images"
    length: int = Field(default=16, ge=3)
    vocabulary: int = Field(default=200, ge=4)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return a hash of the settings and of the generator's version."""
        settings = {**self.model_dump(mode="json"), "version": _VERSION}
        return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the photos or captions; equal settings and seed give equal bits."""
        everyone = self.users + max(self.background_users, int(self.modality == "captions"))
        numbers = range(self.skip, self.skip + everyone)
        rolls = [take_photos(seed, number, self.images, self.bias) for number in numbers]
        images = self.modality == "images"
        words = build_vocabulary((text for roll in rolls[self.users :] for text in roll.captions), self.vocabulary)
        people = _photo_users(rolls) if images else _caption_users(rolls, words, self.length)
        return Dataset(
            name=self.name,
            task="multi_label" if images else "language_model",
            users=people[: self.users],
            background=people[self.users : self.users + self.background_users],
            class_names=tuple(DRAWINGS) if images else words,
            has_time=True,
            shareable=True,
            licence="Apache-2.0",
            sha256=self.fingerprint(data_dir),
        )


def take_photos(seed: int, user_id: int, images: int, bias: float) -> Roll:
    """Return one person's photos, not yet rendered, and captions."""
    rng = numpy_rng(seed, "albums", "person", user_id)
    person = _draw_person(rng)
    t, album = _calendar(rng, images)
    photos = _compose(rng, person, bias, t, album)
    captions = write_captions(numpy_rng(seed, "albums", "captions", user_id), bias, photos.things, photos.scene)
    return Roll(user_id=user_id, person=person, photos=photos, t=t, album=album + user_id * 1000, captions=captions)


def _draw_person(rng: np.random.Generator) -> Person:
    first, other = rng.standard_normal((2, _THINGS))
    return Person(
        attributes={name: int(rng.integers(len(classes))) for name, classes in ATTRIBUTES.items()},
        taste=np.stack([first, 0.6 * first + 0.8 * other]),
        scenes=rng.standard_normal(_SCENES),
        gain=rng.standard_normal(3),
        framing=rng.standard_normal(5),
        camera=rng.standard_normal(4),
        crowd=float(rng.standard_normal()),
    )


def _calendar(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the minute (n,) and the album (n,) of each photo: albums of about ten, photos minutes apart."""
    starts = np.sort(rng.choice(_YEARS_IN_MINUTES // 1440, size=-(-n // _PHOTOS_PER_ALBUM), replace=False)) * 1440
    album = np.sort(rng.integers(len(starts), size=n))
    minute = rng.integers(8 * 60, 20 * 60, size=n)
    t = (starts[album] + minute).astype(np.int64)
    return np.sort(t), album.astype(np.int64)


def _compose(rng: np.random.Generator, person: Person, bias: float, t: np.ndarray, album: np.ndarray) -> Photos:
    n, age = len(t), person.attributes["age"] - 1
    scene, light = _scenes_and_light(rng, person, bias, album)
    count = np.clip(np.rint(2.3 + 0.9 * rng.standard_normal(n) + 0.5 * bias * person.crowd), 1, MOST_THINGS).astype(int)
    things = _choose_things(rng, person, bias, t, count)
    centre, size, tilt = _frame(rng, person, bias, things, count)
    glasses, look = 2 * person.attributes["glasses"] - 1, person.camera
    tint = 0.09 * person.gain + _HAIR_TINTS[person.attributes["hair"]]
    arrays = {
        "centre": centre,
        "size": size,
        "tilt": tilt,
        "tone": 1 + 0.08 * rng.standard_normal((n, MOST_THINGS)),
        "horizon": 0.25 + 0.15 * rng.standard_normal(n) + 0.15 * bias * person.framing[4],
        "wave": np.stack([rng.uniform(0, 2 * np.pi, n), rng.uniform(0.02, 0.12, n)], axis=1),
        "gain": (1 + light)[:, None] * np.exp(bias * tint)[None],
        "saturation": 1 + 0.08 * rng.standard_normal(n) + bias * (0.15 * look[0] - 0.15 * age),
        "contrast": 1 + 0.06 * rng.standard_normal(n) + bias * (0.1 * look[1] + 0.08 * glasses),
        "vignette": 0.1 + 0.05 * rng.random(n) + bias * np.abs(0.2 * look[2]) + bias * 0.06 * (glasses + 1),
        "grain": 0.015 * np.exp(0.2 * rng.standard_normal(n) + 0.9 * bias * look[3]),
    }
    noise = rng.integers(2**62, size=n)
    return Photos(things=things, scene=scene, noise=noise, **{k: v.astype(np.float32) for k, v in arrays.items()})


def _scenes_and_light(
    rng: np.random.Generator, person: Person, bias: float, album: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return scene and light of each photo: with probability ``bias`` those of its album, else drawn for the photo."""
    n, albums = len(album), int(album.max()) + 1
    liked = 1.2 * bias * person.scenes
    scene = np.where(shared := rng.random(n) < bias, _draw(rng, liked, albums)[album], _draw(rng, liked, n))
    light = np.where(shared, rng.standard_normal(albums)[album], rng.standard_normal(n))
    return scene, 0.07 * light


def _choose_things(
    rng: np.random.Generator, person: Person, bias: float, t: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Return (n, m) different things by taste, -1 beyond ``count``; taste moves from the first day's to the last's."""
    progress = (t / _YEARS_IN_MINUTES)[:, None]
    taste = (1 - progress) * person.taste[0] + progress * person.taste[1] + _attribute_taste(person)
    keys = 1.1 * bias * taste + rng.gumbel(size=(len(t), _THINGS))
    things = np.argsort(-keys, axis=1)[:, :MOST_THINGS]
    return np.where(np.arange(MOST_THINGS) < count[:, None], things, -1)


def _frame(
    rng: np.random.Generator, person: Person, bias: float, things: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centre (n, m, 2), size (n, m) and tilt (n, m)."""
    shape, habit = things.shape, bias * person.framing
    centre = _CENTRES[count - 1] + 0.1 * rng.standard_normal((*shape, 2)) + 0.1 * habit[:2]
    centre[..., 1] += np.where(things >= 0, _LIFT[things], 0)
    size = _SIZES[count - 1][:, None] * np.exp(0.1 * rng.standard_normal(shape) + 0.12 * habit[2])
    return centre, size, 0.12 * rng.standard_normal(shape) + 0.15 * habit[3]


def _draw(rng: np.random.Generator, logits: np.ndarray, n: int) -> np.ndarray:
    """Return n draws (n,) of an index with probability softmax(logits)."""
    return np.asarray(np.argmax(logits + rng.gumbel(size=(n, len(logits))), axis=1))


def _attribute_taste(person: Person) -> np.ndarray:
    """Return what the attributes add to the taste (things,): the same for all people of one class."""
    names = [f"{name}={value}" for name, value in person.attributes.items()]
    return np.asarray(0.5 * sum(numpy_rng(0, "albums", "taste", name).standard_normal(_THINGS) for name in names))


def _join(rolls: Sequence[Roll]) -> Photos:
    names = [field.name for field in fields(Photos)]
    return Photos(**{name: np.concatenate([getattr(roll.photos, name) for roll in rolls]) for name in names})


def _photo_users(rolls: Sequence[Roll]) -> tuple[User, ...]:
    pixels = torch.from_numpy(render(_join(rolls)))
    pieces = torch.tensor_split(pixels, np.cumsum([len(roll.t) for roll in rolls])[:-1].tolist())
    return tuple(
        _user(roll, {"x": x, **_labels_and_captions(roll)}, np.arange(len(roll.t)))
        for roll, x in zip(rolls, pieces, strict=True)
    )


def _labels_and_captions(roll: Roll) -> dict[str, torch.Tensor]:
    return {"y": _multi_hot(roll.photos.things), CAPTION: encode_captions(roll.captions, _CAPTION_BYTES)}


def _caption_users(rolls: Sequence[Roll], words: Sequence[str], length: int) -> tuple[User, ...]:
    encoded = [encode_sentences(roll.captions, token_ids(words), length) for roll in rolls]
    return tuple(
        _user(roll, {"x": torch.from_numpy(x), "y": torch.from_numpy(y)}, source)
        for roll, (x, y, source) in zip(rolls, encoded, strict=True)
    )


def _user(roll: Roll, data: Mapping[str, torch.Tensor], rows: np.ndarray) -> User:
    when = {"t": torch.from_numpy(roll.t[rows]), "album": torch.from_numpy(roll.album[rows])}
    return User(user_id=roll.user_id, examples={**data, **when}, attributes=roll.person.attributes)


def _multi_hot(things: np.ndarray) -> torch.Tensor:
    """Return float32 (n, classes) from (n, m) class indices, -1 for none."""
    index = torch.from_numpy(things)
    hot = torch.zeros(len(index), _THINGS + 1).scatter_(1, index.where(index >= 0, _THINGS), 1.0)
    return hot[:, :_THINGS].contiguous()
