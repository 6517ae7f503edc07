from __future__ import annotations

import attack_cases as cases
import numpy as np
import pytest

from fedprint.attacks import embed
from fedprint.attacks.embed import two_dimensions


def test_every_row_has_a_place_in_the_plane_and_people_stand_together() -> None:
    updates = cases.planted(2.0)
    xy = two_dimensions(updates, np.arange(len(updates.values)), seed=0)
    assert xy.shape == (len(updates.values), 2)
    assert np.isfinite(xy).all()
    owner = np.tile(cases.truth(len(xy) // 2), 2)
    centre = np.stack([xy[owner == user].mean(0) for user in range(cases.USERS)])
    nearest = np.linalg.norm(xy[:, None] - centre[None], axis=2).argmin(1)
    assert (nearest == owner).mean() > 0.9


def test_beyond_the_limit_rows_are_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "LIMIT", 50)
    xy = two_dimensions(cases.planted(1.0), np.arange(192), seed=0)
    assert np.isfinite(xy).all(axis=1).sum() == 50
    assert np.isnan(xy).all(axis=1).sum() == 142


def test_some_rows_get_as_many_coordinates() -> None:
    rows = np.arange(60, 120)
    xy = two_dimensions(cases.planted(1.0), rows, seed=0)
    assert xy.shape == (60, 2)
    assert np.isfinite(xy).all()
