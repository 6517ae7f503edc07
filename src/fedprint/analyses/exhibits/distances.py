"""Are a user's examples more alike than other people's (gradient-leaks, figure of intra-user distances)?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy.spatial.distance import cdist, pdist
from scipy.stats import binomtest

from fedprint.analyses.base import Analysis, Scene
from fedprint.analyses.exhibits.base import point_kind, points
from fedprint.rng import numpy_rng


class Distances(Analysis):
    """``distances``: per user the median feature distance among its examples and to random ones of other users.

    Private examples, at most ``most`` of each user, as L2-normalised pooled features. The exhibit has ``kind`` (what
    the features are), ``users`` (``user_id``, ``intra``, ``inter``, ``examples``; distances in [0, 2]), ``n`` and
    ``share_closer`` (share of users with intra < inter: ``value``, Clopper-Pearson ``lo`` and ``hi`` at 95 %). Users
    with fewer than two examples are left out.
    """

    name: Literal["distances"] = "distances"
    most: int = Field(default=100, ge=2)

    def exhibit(self, scene: Scene) -> Mapping[str, Any] | None:
        """Return the distances; None for fewer than two users with two examples."""
        known = {user.user_id: points(scene, user, self.most) for user in scene.private if len(user.examples["y"]) > 1}
        if len(known) < 2:
            return None
        everything = np.concatenate(list(known.values()))
        owner = np.repeat(list(known), [len(examples) for examples in known.values()])
        rows = []
        for user_id, examples in known.items():
            others = np.flatnonzero(owner != user_id)
            drawn = numpy_rng(scene.seed, self.name, user_id).choice(others, min(self.most, len(others)), replace=False)
            intra, inter = float(np.median(pdist(examples))), float(np.median(cdist(examples, everything[drawn])))
            rows.append({"user_id": user_id, "intra": intra, "inter": inter, "examples": len(examples)})
        closer = sum(row["intra"] < row["inter"] for row in rows)
        interval = binomtest(closer, len(rows)).proportion_ci(method="exact")
        share = {"value": closer / len(rows), "lo": float(interval.low), "hi": float(interval.high)}
        return {"kind": point_kind(scene), "users": rows, "share_closer": share, "n": len(rows)}
