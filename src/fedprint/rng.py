"""The only place where seeds are made."""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def seed_for(root: int, *names: object) -> int:
    """Return a 63-bit seed that depends on ``root`` and the path of ``names`` only.

    Equal inputs give equal seeds in every process and on every platform; distinct paths are independent for all
    practical purposes (BLAKE2b), so results cannot depend on what ran before, on workers, or on a resume.
    """
    path = "\x1f".join([str(root), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "big") >> 1


def torch_rng(root: int, *names: object) -> torch.Generator:
    """Return a CPU torch generator seeded by :func:`seed_for`."""
    return torch.Generator().manual_seed(seed_for(root, *names))


def numpy_rng(root: int, *names: object) -> np.random.Generator:
    """Return a numpy generator seeded by :func:`seed_for`."""
    return np.random.default_rng(seed_for(root, *names))
