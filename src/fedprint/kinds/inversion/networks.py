"""Networks and clients on labelled images, as federations and victims need them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedprint.defences.points import Defence
from fedprint.defences.secret_head import secret_head
from fedprint.kinds.inversion.config import Network
from fedprint.models.base import FedModule
from fedprint.models.dual_head import DualHead
from fedprint.models.networks import build_network
from fedprint.types import Device


def network_of(config: Network, shape: tuple[int, int, int], classes: int, defences: Sequence[Defence]) -> FedModule:
    """Return the network that clients train: with a second head where the mechanism is a secret one."""
    model = build_network(config, shape, classes, False)
    secret = secret_head(defences)
    return model if secret is None else DualHead(model, bits=secret.bits, alpha1=secret.alpha1, margin=secret.margin)


def client(name: str, place: int, x: torch.Tensor, y: torch.Tensor) -> Device:
    """Return a device that holds images (n, c, h, w) and labels (n,)."""
    return Device(device_id=f"{name}-{place}", user_id=place, role="anonymous", examples={"x": x, "y": y})
