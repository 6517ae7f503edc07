"""A data set: striped images of invented people, each of whom has a contrast and a favourite direction."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from fedprint.component import Component
from fedprint.data.dataset import Dataset
from fedprint.rng import numpy_rng
from fedprint.types import User

_SIDE = 12
_CLASSES = ("horizontal", "vertical")


class Stripes(Component):
    """``stripes``: ``images`` of 12 x 12 pixels by each of ``users`` people, and by ``background_users`` others."""

    name: Literal["stripes"] = "stripes"
    users: int = Field(default=12, ge=1)
    images: int = Field(default=40, ge=2)
    background_users: int = Field(default=6, ge=0)

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return a hash that changes when the data change: of the settings, as no file is read."""
        return sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the images; equal settings and seed give equal bits."""
        people = tuple(_person(seed, number, self.images) for number in range(self.users + self.background_users))
        return Dataset(
            name=self.name,
            task="single_label",
            users=people[: self.users],
            background=people[self.users :],
            class_names=_CLASSES,
            has_time=False,
            shareable=True,
            licence="CC0-1.0",
            sha256=self.fingerprint(data_dir),
        )


def _person(seed: int, number: int, images: int) -> User:
    rng = numpy_rng(seed, "stripes", number)
    width, contrast, taste = rng.uniform(0.7, 1.3), rng.uniform(40, 110), rng.uniform(0.2, 0.8)
    y = (rng.random(images) < taste).astype(np.int64)
    waves = np.sin(width * np.arange(_SIDE) + 0.3 * rng.standard_normal((images, 1)))  # (n, side)
    vertical = np.broadcast_to(waves[:, None, :], (images, _SIDE, _SIDE))
    pictures = np.where(y[:, None, None] == 1, vertical, vertical.transpose(0, 2, 1))
    pixels = 128 + contrast * pictures + 10 * rng.standard_normal(pictures.shape)
    order = torch.arange(images)
    examples = {
        "x": torch.from_numpy(pixels.clip(0, 255).astype(np.uint8))[:, None],
        "y": torch.from_numpy(y),
        "t": order,
        "album": order + 1000 * number,
    }
    return User(user_id=number, examples=examples)
