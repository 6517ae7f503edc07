"""Examples as the networks read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedprint.component import Component
from fedprint.data.examples import CLUSTER, PooledExamples
from fedprint.models.networks import network_inputs
from fedprint.types import Examples, User


def model_input(
    examples: Examples, dtype: torch.dtype, device: str = "cpu", model: Component | None = None
) -> dict[str, Tensor]:
    """Return ``x`` and ``y`` as the models take them: images in [0, 1] of ``dtype``, multi-hot labels of ``dtype``.

    For a ``model`` on fixed features ``x`` holds those.
    """
    x, y = examples["x"], examples["y"]
    x = x.to(dtype) / 255 if x.dtype == torch.uint8 else x
    x = network_inputs(model, x)
    y = y.to(dtype) if y.is_floating_point() else y
    extra = {name: examples[name] for name in ("t", "album", CLUSTER) if name in examples}
    return {"x": x.to(device), "y": y.to(device), **extra}


def model_users(
    users: Sequence[User], dtype: torch.dtype, device: str = "cpu", model: Component | None = None
) -> tuple[User, ...]:
    """Return the users with examples as model input; a pool of examples that users share is converted once."""
    pools: dict[int, Examples] = {}

    def converted(examples: Examples) -> Examples:
        if not isinstance(examples, PooledExamples):
            return model_input(examples, dtype, device, model)
        key = id(examples.pool)
        pools[key] = pools.get(key) or model_input(examples.pool, dtype, device, model)
        return examples.with_pool(pools[key])

    return tuple(User(user_id=u.user_id, examples=converted(u.examples), attributes=u.attributes) for u in users)
