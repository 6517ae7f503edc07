"""Are users separated better by their updates than by their raw data (papers.md 2.5: two t-SNE plots)?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedprint.analyses.base import Analysis, Scene
from fedprint.analyses.exhibits.base import point_kind, points
from fedprint.attacks.embed import LIMIT, flat, two_dimensions
from fedprint.types import Floats

Panel = list[dict[str, Any]]


class RawFeatures(Analysis):
    """``raw-features``: t-SNE of raw examples of some users, and of their updates.

    The ``users`` users with most recorded updates. The exhibit has ``kind`` (what the features are) and the panels
    ``raw`` and ``updates``: points with ``x``, ``y``, ``user_id`` and ``role`` (prior, private), at most 600 each.
    """

    name: Literal["raw-features"] = "raw-features"
    users: int = Field(default=12, ge=2)

    def exhibit(self, scene: Scene) -> Mapping[str, Any] | None:
        """Return both panels."""
        from threadpoolctl import threadpool_limits

        ids, counts = np.unique(scene.owner, return_counts=True)
        chosen = sorted(ids[np.lexsort((ids, -counts))][: self.users].tolist())
        with threadpool_limits(1):  # bits must not depend on the machine's cores
            return {"kind": point_kind(scene), "raw": _raw(scene, chosen), "updates": _updates(scene, chosen)}


def _raw(scene: Scene, chosen: list[int]) -> Panel:
    each = LIMIT // (2 * len(chosen))
    examples, marks = [], []
    for role, users in (("prior", scene.prior), ("private", scene.private)):
        for user in users:
            if user.user_id in chosen:
                drawn = points(scene, user, each)
                examples.append(drawn)
                marks += [(user.user_id, role)] * len(drawn)
    return _panel(flat(np.concatenate(examples)), marks)


def _updates(scene: Scene, chosen: list[int]) -> Panel:
    rows = np.flatnonzero(np.isin(scene.owner, chosen))
    roles = ["prior" if role == "prior" else "private" for role in scene.store.index["role"].iloc[rows]]
    xy = two_dimensions(scene.store, rows, seed=scene.seed)
    marks = list(zip(scene.owner[rows].tolist(), roles, strict=True))
    shown = np.flatnonzero(~np.isnan(xy[:, 0]))
    return _panel(xy[shown], [marks[i] for i in shown])


def _panel(xy: Floats, marks: list[tuple[int, str]]) -> Panel:
    return [
        {"x": round(float(x), 2), "y": round(float(y), 2), "user_id": user_id, "role": role}
        for (x, y), (user_id, role) in zip(xy, marks, strict=True)
    ]
