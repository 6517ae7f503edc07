"""A recorded folder whose manifest gives a network, the models by round and the rate of gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml
from recorded_folders import HEADER, index_rows, table

SHAPES = {"fc1.weight": (3, 4), "fc1.bias": (3,), "head.weight": (2, 3), "head.bias": (2,)}
N, WIDTH = 16, 23
GIVEN = {"model": {"name": "mlp", "hidden": 3}, "input": [1, 2, 2], "globals": "globals", "gradients": {"lr": 0.1}}


def parts(vector: np.ndarray) -> dict[str, np.ndarray]:
    cut = np.split(vector, np.cumsum([int(np.prod(shape)) for shape in SHAPES.values()])[:-1])
    return {name: part.reshape(SHAPES[name]) for name, part in zip(SHAPES, cut, strict=True)}


def model(number: int) -> np.ndarray:
    return np.random.default_rng(100 + number).normal(size=WIDTH).astype(np.float32)


def write(folder: Path, **more: object) -> Path:
    """Write updates of two rounds, one npz each, and the model of each round."""
    for name in ("updates", "globals"):
        (folder / name).mkdir(parents=True)
    for position in range(N):
        vector = np.random.default_rng(position).normal(size=WIDTH).astype(np.float32)
        np.savez(folder / "updates" / f"{position}.npz", **parts(vector))
    for number in (0, 1):
        np.savez(folder / "globals" / f"{number}.npz", **parts(model(number)))
    (folder / "index.csv").write_text(table([HEADER, *index_rows(N)]))
    manifest = {"format": "npz", "updates": "updates", "index": "index.csv", **GIVEN, **more}
    (folder / "manifest.yaml").write_text(yaml.safe_dump({k: v for k, v in manifest.items() if v is not None}))
    return folder
