"""How products are rounded in local training. Parameters, updates and losses keep their own precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fedprint.types import Precision


@contextmanager
def forward_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute a model's losses with factors in bfloat16 (8 bits) inside the block, if ``precision`` says so.

    Gradients are taken outside of the block: they are rounded as the losses were (torch.autocast).
    """
    if precision != "bf16":
        yield
        return
    # No cache of weights: under torch.func a weight of one transform would be read in another.
    with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
        yield


@contextmanager
def products_in(precision: Precision) -> Iterator[None]:
    """Let NVIDIA GPUs read the factors of float32 products as TF32 (11 bits) inside the block, only if it says so.

    TF32 is cuDNN's default for convolutions.
    """
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        for backend, allowed in zip(backends, before, strict=True):
            backend.allow_tf32 = allowed
