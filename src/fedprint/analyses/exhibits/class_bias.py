"""What a device's output layer reveals of its labels, for prior and private device (papers.md 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedprint.analyses.base import Analysis, Scene
from fedprint.analyses.exhibits.base import Labels, extremes, labels
from fedprint.types import Ints

ROLES = {"prior": "prior", "private": "anonymous"}


class ClassBias(Analysis):
    """``class-bias``: for some users, how far their devices move each class of the output layer.

    The users are the ``users`` most and least recognisable ones in equal parts that sent updates from both devices.
    The exhibit has ``kind`` and ``users``: ``user_id``, ``ap``, ``group`` (most, least), and per device (``prior``,
    ``private``) its number of ``updates`` with either, for ``kind: classes``, ``norm`` (c,): the L2 norm of each class
    column of the update, averaged over the device's updates, and ``share`` (c,): of its labels (``classes`` names
    them); or, for a language model (``kind: words``), ``words``: the ``top`` words whose output bias rises most, with
    the mean ``change`` and whether the device holds it (``used``). Nothing for a regression, which has a single
    output, and where the output layer was not recorded.
    """

    name: Literal["class-bias"] = "class-bias"
    users: int = Field(default=6, ge=2)
    top: int = Field(default=12, ge=1)

    def exhibit(self, scene: Scene) -> Mapping[str, Any] | None:
        """Return the class bias of the chosen users."""
        layer = output_layer(scene)
        if layer is None:
            return None
        words = scene.task == "language_model"
        counted = {"prior": labels(scene, scene.prior), "private": labels(scene, scene.private)}
        rows = []
        for group, chosen in extremes(_with_both_devices(scene), self.users // 2).items():
            for user_id in chosen:
                row: dict[str, Any] = {"user_id": user_id, "ap": scene.ap[user_id], "group": group}
                for device, role in ROLES.items():
                    sent = rows_of_device(scene, user_id, role)
                    describe = self._words if words else self._classes
                    row[device] = {"updates": len(sent), **describe(scene, layer, sent, counted[device], user_id)}
                rows.append(row)
        kind: dict[str, Any] = {"kind": "words"} if words else {"kind": "classes", "classes": list(scene.class_names)}
        return {**kind, "layer": layer, "users": rows}

    def _classes(self, scene: Scene, layer: str, sent: Ints, known: Labels, user_id: int) -> dict[str, Any]:
        updates = scene.store.matrix([layer], sent).reshape(len(sent), len(scene.class_names), -1)
        norm = np.linalg.norm(updates, axis=2).mean(0)
        return {"norm": _rounded(norm), "share": _rounded(known.shares(user_id))}

    def _words(self, scene: Scene, layer: str, sent: Ints, known: Labels, user_id: int) -> dict[str, Any]:
        change = scene.store.matrix([layer], sent).reshape(len(sent), -1).mean(0)
        best = np.argsort(-change, kind="stable")[: self.top].tolist()
        used = known.counts[user_id]
        return {
            "words": [
                {"word": scene.class_names[i], "change": float(f"{change[i]:.4g}"), "used": bool(used[i])} for i in best
            ]
        }


def output_layer(scene: Scene) -> str | None:
    """Return the name of the recorded output weights (c, h), for a language model of the output bias (c,).

    The last tensor with one row per class; None where none is recorded, and for a regression.
    """
    if scene.task == "regression":
        return None
    rank = 1 if scene.task == "language_model" else 2
    shapes = scene.store.layout.shapes
    fitting = [
        name for name in scene.store.layers if len(shapes[name]) == rank and shapes[name][0] == len(scene.class_names)
    ]
    return fitting[-1] if fitting else None


def rows_of_device(scene: Scene, user_id: int, role: str) -> Ints:
    """Return the store's rows that a user's device of a role sent."""
    rows: Ints = np.flatnonzero((scene.owner == user_id) & (scene.store.index["role"] == role).to_numpy())
    return rows


def _with_both_devices(scene: Scene) -> dict[int, float]:
    return {
        user_id: ap
        for user_id, ap in scene.ap.items()
        if all(len(rows_of_device(scene, user_id, role)) for role in ROLES.values())
    }


def _rounded(values: NDArray[np.floating]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
