"""The data and the network of a cell, as its parts need them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from fedprint.data.labelled_images import LabelledImages, LabelledSet
from fedprint.data.locate import data_root
from fedprint.defences.points import Defence
from fedprint.defences.secret_head import secret_head
from fedprint.kinds.inversion.config import Network
from fedprint.models.base import FedModule
from fedprint.models.dual_head import DualHead
from fedprint.rng import seed_for
from fedprint.types import Device


@cache
def images_of(source: LabelledImages, seed: int) -> LabelledSet:
    """Return the images of an experiment; cells of one process share them."""
    return source.load(data_root(None), seed_for(seed, "data"))


def network_of(config: Network, shape: tuple[int, int, int], classes: int, defences: Sequence[Defence]) -> FedModule:
    """Return the network that clients train: with a second head where the mechanism is a secret one."""
    model = config.build(shape, classes, False)
    secret = secret_head(defences)
    return model if secret is None else DualHead(model, bits=secret.bits, alpha1=secret.alpha1, margin=secret.margin)


def client(name: str, place: int, x: torch.Tensor, y: torch.Tensor) -> Device:
    """Return a device that holds images (n, c, h, w) and labels (n,)."""
    return Device(device_id=f"{name}-{place}", user_id=place, role="anonymous", examples={"x": x, "y": y})
