"""Defences as plain functions, for a client of any framework; they run the components of ``fedprint.defences``.

Arrays are NumPy's or PyTorch's, and come back as they went in, with their shapes and types. An update is a mapping
name -> array (d_1, ...), a list of arrays, or one array. It is trained minus received weights, never the weights.
Examples are a mapping with ``x`` (n, ...) and ``y`` (n, ...), and so is the public background.

``seed`` makes a result repeatable, for simulations. Without it every call draws a fresh one from the operating system:
noise that someone can draw again protects nobody. The noise is that of a simulation (PyTorch's generator, floating
point), not of a hardened mechanism.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from fedprint.component import Component
from fedprint.data.clusters import cluster, pixel_features
from fedprint.data.examples import CLUSTER
from fedprint.defences.on_data import BkgRepl, MmAug, RandAug
from fedprint.defences.on_update import DpLocal, Noise, Quantise, TopK
from fedprint.errors import FedprintError
from fedprint.rng import torch_rng
from fedprint.types import DataDefence, Examples, Ints, UpdateDefence

Made = TypeVar("Made", bound=Component)
Update = TypeVar("Update")
"""A mapping name -> array, a list of arrays, or one array."""


def noise(update: Update, *, sigma: float, seed: int | None = None) -> Update:
    """Return the update plus N(0, sigma^2) on every coordinate (gradient-leaks, 6.1); sigma 0 changes nothing."""
    return _on_update(_made(Noise, sigma=sigma), update, seed)


def clipped_noise(update: Update, *, clip: float, z: float, seed: int | None = None) -> Update:
    """Return the update, scaled to L2 norm ``clip`` where it is longer, plus N(0, (z clip)^2) on every coordinate."""
    return _on_update(_made(DpLocal, clip=clip, z=z), update, seed)


def quantised(update: Update, *, bits: int = 1, seed: int | None = None) -> Update:
    """Return the update, each array rounded at random to 2^bits values between its least and its greatest entry.

    One bit sends the least or the greatest entry, with the chances that keep the mean (QSGD; Alistarh et al. 2017).
    """
    return _on_update(_made(Quantise, bits=bits), update, seed)


def sparse(update: Update, *, share: float, per_layer: bool = False, seed: int | None = None) -> Update:
    """Return the update with all but its ``share`` of largest entries 0, over all arrays or in each one (PPDL)."""
    return _on_update(_made(TopK, share=share, per_layer=per_layer), update, seed)


def bkg_repl(examples: Examples, background: Examples, *, alpha: float, seed: int | None = None) -> Examples:
    """Return n examples, of which ``round(alpha n)`` are background in place of the client's own."""
    return _on_data(_made(BkgRepl, alpha=alpha), examples, background, seed)


def rand_aug(examples: Examples, background: Examples, *, alpha: float, seed: int | None = None) -> Examples:
    """Return the client's n examples and ``round(alpha n)`` random ones of the background."""
    return _on_data(_made(RandAug, alpha=alpha), examples, background, seed)


def mm_aug(examples: Examples, background: Examples, *, alpha: float, seed: int | None = None) -> Examples:
    """Return the client's n examples and ``round(alpha n)`` of one mode of the background, drawn at random.

    The background has a column ``cluster`` (n,) beside ``x`` and ``y``: the mode of each example, see :func:`modes`. A
    client has to keep its mode over all rounds, so it passes a ``seed`` that only it knows and that stays the same.
    """
    if len(background.get("y", ())) and CLUSTER not in background:
        raise FedprintError("mm_aug: the background has no column 'cluster'; add modes(background['x'], clusters=...)")
    return _on_data(_made(MmAug, alpha=alpha), examples, background, seed)


def modes(x: Any, *, clusters: int, seed: int = 0) -> Ints:
    """Return the mode 0 .. ``clusters`` - 1 of each background example, the column ``cluster`` of ``mm_aug``: (n,).

    ``x`` holds images (n, h, w) or (n, channels, h, w), which are clustered by the principal components of their
    pixels, or features (n, d). Public and the same for all clients, so the seed is no secret.
    """
    table = torch.as_tensor(x)
    if table.ndim not in (2, 3, 4):
        raise FedprintError(f"modes: x has shape {tuple(table.shape)}; give images or features (n, d)")
    features = (
        table.float().numpy() if table.ndim == 2 else pixel_features(table if table.ndim == 4 else table[:, None])
    )
    return cluster(features, clusters, seed)


def _made(kind: type[Made], **settings: Any) -> Made:
    """Return a component. Raises FedprintError for settings that it refuses."""
    try:
        return kind(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        where, value = first["loc"][0], first["input"]
        raise FedprintError(f"{kind.__name__}: {where} is {value!r}; {first['msg'].lower()}") from error


def _on_update(defence: UpdateDefence, update: Update, seed: int | None) -> Update:
    named: dict[Any, Any] = _by_name(update)
    fixed = {name: array for name, array in named.items() if not _is_real(array)}  # such as counts of batches
    real = {name: _tensor(array) for name, array in named.items() if name not in fixed}
    if not real:
        raise FedprintError("the update holds no array of real numbers to protect")
    sent = defence.on_device(real, torch_rng(_drawn(seed), "protect"))
    after: Any = {name: fixed[name] if name in fixed else _like(sent[name], named[name]) for name in named}
    if isinstance(update, Mapping):
        return after  # type: ignore[no-any-return]
    return list(after.values()) if isinstance(update, list | tuple) else after[0]  # type: ignore[return-value]


def _by_name(update: Any) -> dict[Any, Any]:
    if isinstance(update, Mapping):
        return dict(update)
    return dict(enumerate(update)) if isinstance(update, list | tuple) else {0: update}


def _on_data(defence: DataDefence, examples: Examples, background: Examples, seed: int | None) -> Examples:
    if missing := next((name for name in ("x", "y") if name not in examples), None):
        raise FedprintError(f"the examples have no column '{missing}'; give a mapping with x (n, ...) and y (n, ...)")
    own = {name: _tensor(examples[name]) for name in ("x", "y")}
    public = {name: _tensor(background[name]) for name in ("x", "y", CLUSTER) if name in background}
    for name, column in own.items():
        if name in public and public[name].shape[1:] != column.shape[1:]:
            shapes = tuple(column.shape[1:]), tuple(public[name].shape[1:])
            raise FedprintError(f"{name}: examples have shape {shapes[0]}, background {shapes[1]}; prepare both alike")
    after = defence.on_data(own, public, torch_rng(_drawn(seed), "protect"))
    return {name: _like(column, examples[name]) for name, column in after.items()}


def _drawn(seed: int | None) -> int:
    return secrets.randbits(62) if seed is None else seed


def _is_real(array: Any) -> bool:
    return (
        array.is_floating_point() if isinstance(array, Tensor) else np.issubdtype(np.asarray(array).dtype, np.floating)
    )


def _tensor(array: Any) -> Tensor:
    return array.detach() if isinstance(array, Tensor) else torch.from_numpy(np.array(array))


def _like(tensor: Tensor, given: Any) -> Any:
    return tensor if isinstance(given, Tensor) else tensor.numpy()
