"""Folders of recorded updates with a planted signal: several users, a known and an anonymous device each."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

SHAPES = {"body.weight": (6, 8), "body.bias": (6,), "head.weight": (3, 6), "head.bias": (3,)}
USERS, ROUNDS = 12, 6


def write_recording(
    folder: Path,
    *,
    signal: float = 1.0,
    users: Sequence[str] = tuple(f"person-{u}" for u in range(USERS)),
    rounds: int = ROUNDS,
    truth: bool = True,
    shuffled: bool = False,
    counts: Sequence[int] | None = None,
    seed: int = 0,
    **more: Any,
) -> Path:
    """Write a matrix, index, truth and manifest; ``counts`` are the examples of each user.

    Every user has a known device (lines with ``user``) and an anonymous one that sends in every round. Without
    ``truth`` there are only the known ones.
    """
    rng = np.random.default_rng(seed)
    width = sum(int(np.prod(shape)) for shape in SHAPES.values())
    person, common = rng.normal(size=(len(users), width)), 2 * rng.normal(size=width)
    lines, values = list[Mapping[str, Any]](), []
    for round_ in range(rounds):
        for role in ("known", "anonymous") if truth else ("known",):
            for u, user in enumerate(users):
                own = {
                    "row": len(values),
                    "round": round_,
                    "device": f"{role}-{u}",
                    "user": user if role == "known" else "",
                }
                lines.append(own | {"num_examples": 10 if counts is None else counts[u]})
                values.append(1e-3 * (common + signal * person[u] + rng.normal(size=width)))
    folder.mkdir(parents=True)
    np.save(folder / "updates.npy", np.array(values, dtype=np.float32))
    _write(folder / "index.csv", lines)
    named = list(np.random.default_rng(seed + 1).permutation(users)) if shuffled else list(users)
    manifest: dict[str, Any] = {"format": "npy", "updates": "updates.npy", "index": "index.csv", "layers": SHAPES}
    if truth:
        _write(folder / "truth.csv", [{"device": f"anonymous-{u}", "user": str(name)} for u, name in enumerate(named)])
        manifest["truth"] = "truth.csv"
    manifest["layers"] = {name: list(shape) for name, shape in SHAPES.items()}
    (folder / "manifest.yaml").write_text(yaml.safe_dump({**manifest, **more}, sort_keys=False))
    return folder


def _write(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
