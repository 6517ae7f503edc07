"""A small deterministic run that fills an update store; shared by the tests of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedprint.store.layout import StoreLayout
from fedprint.store.writer import StoreWriter
from fedprint.types import Observation, Truth

ROUNDS, COHORT = 4, 5
SHAPES = {"body.weight": (30, 20), "body.bias": (30,), "head.weight": (5, 30)}
KEPT = ("body.weight", "head.weight")
LAYOUT = StoreLayout(rounds=ROUNDS, cohort=COHORT, shapes=SHAPES, kept=KEPT, fingerprint="config-1")


@lru_cache(maxsize=256)
def params(seed: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=rng) for name, shape in SHAPES.items()}


@lru_cache(maxsize=256)
def observations(round: int) -> list[Observation]:
    """Cohorts of 5, 0 (Poisson sampling may draw nobody), 4, 5, 5, 0 ... observations of 3 users."""
    return [_observation(round, slot) for slot in range((5, 0, 4, 5)[round % 4])]


def _observation(round: int, slot: int) -> Observation:
    user, prior = (round + slot) % 3, slot % 2 == 1
    of_user, noise = params(user + 1000), params(round * 100 + slot + 2000)
    update = {name: 1e-3 * of_user[name] + 4e-4 * noise[name] for name in SHAPES}
    return Observation(
        obs_id=100 * round + slot,
        round=round,
        role="prior" if prior else "anonymous",
        num_examples=3 + slot,
        pseudonym=f"name-{slot}" if slot == 2 else None,
        user_id=user if prior else None,
        update=update,
    )


def truths(round: int) -> list[Truth]:
    return [
        Truth(obs_id=o.obs_id, user_id=(round + k) % 3, device_id=f"device-{(round + k) % 3}-{o.role}")
        for k, o in enumerate(observations(round))
    ]


def metrics(round: int) -> dict[str, float]:
    return {"loss": 1.0 / (round + 3), "accuracy": 0.1 * round}


def expected(rounds: int = ROUNDS) -> np.ndarray:
    rows = [torch.cat([o.update[n].flatten() for n in KEPT]) for t in range(rounds) for o in observations(t)]
    return torch.stack(rows).double().numpy()


def prior_rows() -> np.ndarray:
    return np.array([o.role == "prior" for t in range(ROUNDS) for o in observations(t)])


def cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T - np.eye(len(rows))


def run(
    folder: Path,
    layout: StoreLayout,
    *,
    stop_after: int | None = None,
    before_round: Mapping[int, Callable[[], None]] | None = None,
    anonymous_user: Callable[[int], int] = lambda user: user,
    rename: Callable[[int], int] = lambda obs_id: obs_id,
) -> None:
    """Run or resume to the end, or to ``stop_after`` rounds."""
    with StoreWriter.open(folder, layout) as writer:
        writer.set_initial(params(0))
        for round in range(writer.next_round, layout.rounds if stop_after is None else stop_after):
            (before_round or {}).get(round, lambda: None)()
            seen = [replace(o, obs_id=rename(o.obs_id)) for o in observations(round)]
            known = {o.obs_id for o in seen if o.role == "prior"}
            facts = [replace(t, obs_id=rename(t.obs_id)) for t in truths(round)]
            facts = [t if t.obs_id in known else replace(t, user_id=anonymous_user(t.user_id)) for t in facts]
            writer.append(round, seen, facts, params(round + 1), metrics(round))
        if stop_after is None:
            writer.finalise()


def append_first(folder: Path, seen: Sequence[Observation], **changes: Any) -> None:
    with StoreWriter.open(folder, replace(LAYOUT, **changes)) as writer:
        writer.set_initial(params(0))
        writer.append(0, seen, truths(0), params(1), {})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refusing(code: int) -> Callable[..., int]:
    """Stand in for a call of ``os`` on a disk that takes no more."""

    def refuse(*_: object) -> int:
        raise OSError(code, "refused")

    return refuse
