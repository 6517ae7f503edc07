from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedprint.types import User


@pytest.fixture
def photo_columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "images": rng.integers(0, 256, size=(12, 8, 8, 3), dtype=np.uint8),
        "labels": np.tile(np.arange(2), 6),
        "user": np.repeat([3, 1, 2], 4),
        "time": np.tile(np.arange(4)[::-1], 3),
    }


@pytest.fixture
def post_columns() -> dict[str, np.ndarray]:
    return {
        "user": np.repeat([1, 2, 3], 4),
        "order": np.tile(np.arange(4), 3),
        "score": np.array([0.5, np.nan] * 6),
        "text": np.array(["The sea was warm. We swam there!", "No sea today."] * 6, dtype=object),
        "group": np.repeat(np.array(["federated", "federated", "background"], dtype=object), 4),
    }


@pytest.fixture
def make_users() -> Callable[..., list[User]]:
    """Users whose every row has a globally unique ``x``; times are shuffled within each user, with ties."""

    def make(sizes: list[int], seed: int = 0) -> list[User]:
        rng = np.random.default_rng(seed)
        ends = np.cumsum([0, *sizes])
        return [
            User(
                user_id=10 + i,
                examples={
                    "x": torch.arange(int(ends[i]), int(ends[i + 1])),
                    "t": torch.from_numpy(rng.integers(0, max(1, n // 2), size=n)),
                },
                attributes={"age": i % 3},
            )
            for i, n in enumerate(sizes)
        ]

    return make
