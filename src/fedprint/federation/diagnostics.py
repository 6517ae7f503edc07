"""How similar the clients of a round are (client-dp, section 3, definition of V_c and U_s)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedprint.types import Params


def between_clients(updates: Sequence[Params]) -> dict[str, float]:
    """Return the diagnostics of one round's updates, before clipping; nothing for an empty round.

    ``between_clients_variance`` V_c: the mean over parameters of their variance over clients. ``update_scale`` U_s: the
    mean squared entry of the plain mean update. Both in float64. They are computed from raw updates: no guarantee
    covers them.
    """
    if not updates:
        return {}
    moments = [_moments([update[name] for update in updates]) for name in updates[0]]
    count = sum(mean.numel() for mean, _ in moments)
    return {
        "between_clients_variance": sum(float(variance.sum()) for _, variance in moments) / count,
        "update_scale": sum(float(mean.square().sum()) for mean, _ in moments) / count,
    }


def _moments(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and variance of one parameter over clients, in two passes and the memory of a few tensors."""
    mean = sum((tensor.double() for tensor in tensors), torch.zeros_like(tensors[0], dtype=torch.float64)) / len(
        tensors
    )
    spread = torch.zeros_like(mean)
    for tensor in tensors:
        spread += (tensor.double() - mean).square()
    return mean, spread / len(tensors)
