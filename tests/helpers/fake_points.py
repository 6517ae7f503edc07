"""Points without any federation: numbers chosen by the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedprint.evaluation.rows import COLUMNS
from fedprint.evaluation.tradeoffs.tradeoff import Point, point_of

CHANCE = 0.05


def fake_point(
    ap: float | Mapping[str, float],
    utility: float,
    seed: int = 0,
    *,
    defence: str = "noise",
    seconds: float | None = 2.0,
    factor: float = 1.0,
    users: int = 20,
    linked: bool = False,
) -> Point:
    """Return a point with the AP of each adversary (naive, when one number) and an accuracy.

    AP of all updates of a device is 1.2 times that; with ``linked`` that of 3 and 30 updates too. Chance is doubled.
    """
    found = dict(ap) if isinstance(ap, Mapping) else {"naive": ap}
    condition: dict[str, Any] = {
        **dict.fromkeys(COLUMNS), "experiment": "point", "dataset": "albums", "prior": "random", "world": "closed",
        "training": "federated", "defence": defence, "defended": "everyone", "view": "local", "seed": seed,
    }  # fmt: skip
    numbers = {"unit": "fraction", "n_questions": 100, "n_users": users}
    rows = [
        {**condition, **numbers, "metric": "accuracy", "value": utility, "lo": utility - 0.02, "hi": utility + 0.02,
         "chance": 0.1, "adversary": "naive"}
    ]  # fmt: skip
    for adversary, value in found.items():
        for attack, selected in (("ridge", True), ("svm", False)):
            keys = {"adversary": adversary, "linkage": "update", "attack": attack, "selected": selected}
            shown = {"metric": "ap", "value": value, "lo": value - 0.03, "hi": value + 0.03, "chance": CHANCE}
            rows.append({**condition, **numbers, **keys, **shown})
            of_device = {"value": min(1.2 * value, 1.0), "hi": min(1.2 * value + 0.03, 1.0), "chance": 2 * CHANCE}
            rows.append({**rows[-1], "linkage": "device", **of_device})
    by_user = {
        adversary: {"ridge": {str(user): min(max(value * (0.8 + 0.02 * user), 0), 1) for user in range(users)}}
        for adversary, value in found.items()
    }
    overhead = {
        "examples_before": 100.0, "examples_after": 100.0 * factor, "federation_seconds": seconds,
        "cluster_seconds": 0.1, "data_seconds_per_device": 0.001, "update_seconds_per_device": 0.002,
    }  # fmt: skip
    linked_rows = [
        {**row, "analysis": "linked", "linked_updates": updates}
        for row in rows if row["linkage"] == "device" for updates in (3, 30)
    ]  # fmt: skip
    point = point_of(f"{seed}-{utility}-{sorted(found.items())}", rows, by_user, overhead)
    return replace(point, analyses=tuple(linked_rows) if linked else ())
