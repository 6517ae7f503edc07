"""Algebra on dicts of tensors: parameters, updates, means of updates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedprint.types import Params

CHUNK = 256
"""Updates on a GPU that are handled together, where one after another would cost a launch for each tensor."""


def add(a: Params, b: Params, scale: float = 1.0) -> dict[str, Tensor]:
    """Return ``a + scale * b``, name by name."""
    return {name: a[name] + scale * b[name] for name in a}


def scale(a: Params, factor: float) -> dict[str, Tensor]:
    """Return ``factor * a``."""
    return {name: tensor * factor for name, tensor in a.items()}


def norm(a: Params) -> float:
    """Return the L2 norm of the whole dict read as one vector (never per tensor), summed in float64."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in a.values()))


def norms(updates: Sequence[Params]) -> list[float]:
    """Return :func:`norm` of each; those on a GPU in few launches, because each value that is read waits for it."""
    if not updates or not next(iter(updates[0].values())).is_cuda:
        return [norm(update) for update in updates]
    squares = [
        sum(torch.stack([update[name] for update in part]).double().flatten(1).square().sum(1) for name in part[0])
        for part in (updates[start : start + CHUNK] for start in range(0, len(updates), CHUNK))
    ]
    return [float(value) for value in torch.cat([torch.as_tensor(part) for part in squares]).sqrt().tolist()]


def clip(a: Params, max_norm: float) -> dict[str, Tensor]:
    """Scale ``a`` to L2 norm ``max_norm`` where it is longer: ``a / max(1, |a| / S)`` (client-dp, algorithm 1)."""
    return scale(a, 1.0 / max(1.0, norm(a) / max_norm))


def weighted_mean(updates: Iterable[Params], weights: Sequence[float], total: float | None = None) -> dict[str, Tensor]:
    """Return ``sum_k (n_k / n) update_k`` with n the sum of the weights (papers.md, section 1, erratum 1).

    ``total``, where given, replaces n. The mean of no updates is empty.
    """
    total = float(sum(weights)) if total is None else total
    updates = list(updates)
    if updates and next(iter(updates[0].values())).is_cuda:
        return _weighted_mean_on_gpu(updates, weights, total)
    mean: dict[str, Tensor] = {}
    terms: dict[str, Tensor] = {}
    for update, weight in zip(updates, weights, strict=True):
        if not mean:
            mean = dict(zip(update, torch._foreach_mul(list(update.values()), weight / total), strict=True))
            terms = {name: torch.empty_like(tensor) for name, tensor in mean.items()}
            continue
        for name, term in terms.items():  # in place; a fused multiply-add would round as memory happens to lie
            torch.mul(update[name], weight / total, out=term)
        torch._foreach_add_(list(mean.values()), list(terms.values()))
    return mean


def _weighted_mean_on_gpu(updates: Sequence[Params], weights: Sequence[float], total: float) -> dict[str, Tensor]:
    some = next(iter(updates[0].values()))
    shares = (torch.tensor(weights, dtype=torch.float64) / total).to(some)
    mean = {name: torch.zeros_like(tensor).flatten() for name, tensor in updates[0].items()}
    for start in range(0, len(updates), CHUNK):
        part = updates[start : start + CHUNK]
        for name, sums in mean.items():
            sums += shares[start : start + CHUNK] @ torch.stack([update[name] for update in part]).flatten(1)
    return {name: sums.view_as(updates[0][name]) for name, sums in mean.items()}


def flatten(a: Params) -> Tensor:
    """Concatenate all tensors in dict order: (d,)."""
    return torch.cat([tensor.reshape(-1) for tensor in a.values()])


def unflatten(vector: Tensor, like: Params) -> dict[str, Tensor]:
    """Inverse of :func:`flatten`: cut (d,) into tensors shaped as ``like``."""
    sizes = [tensor.numel() for tensor in like.values()]
    parts = torch.split(vector, sizes)
    return {name: part.reshape(like[name].shape) for (name, part) in zip(like, parts, strict=True)}


def select(names: Sequence[str], layers: Sequence[str] | None) -> tuple[str, ...]:
    """Return the parameter names that ``layers`` keep: a layer is a full name or a dotted prefix; None keeps all."""
    if layers is None:
        return tuple(names)
    return tuple(n for n in names if any(n == layer or n.startswith(layer + ".") for layer in layers))
