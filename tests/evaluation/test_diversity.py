"""V_c and U_s over training: the last third of the rounds against the first."""

from __future__ import annotations

import numpy as np
import pytest

from fedprint.evaluation.diversity import LEAST, doublings


def test_what_doubles_has_moved_by_one_and_halves_by_minus_one() -> None:
    rising = doublings([1.0] * 4 + [3.0] * 4 + [2.0] * 4)
    assert rising is not None and (rising.value, rising.lo, rising.hi) == (1.0, 1.0, 1.0)
    noise = np.exp2(np.random.default_rng(0).normal(0, 0.2, 12))
    falling = doublings((np.repeat([1.0, 0.7, 0.5], 4) * noise).tolist())
    assert falling is not None and falling.lo < falling.value < falling.hi < -0.5
    scaled = doublings((1e-9 * np.repeat([1.0, 0.7, 0.5], 4) * noise).tolist())
    assert scaled is not None and scaled.value == pytest.approx(falling.value), "the scale plays no part"


def test_the_interval_is_welchs() -> None:
    found = doublings([1.0, 2.0, 4.0, 9.0, 9.0, 9.0, 4.0, 8.0, 64.0])  # logs 0 1 2 and 2 3 6, variances 1 and 13/3
    se, df = (16 / 9) ** 0.5, (16 / 9) ** 2 / ((1 / 3) ** 2 / 2 + (13 / 9) ** 2 / 2)
    from scipy.stats import t

    assert found is not None and found.value == pytest.approx(8 / 3)
    assert found.hi - found.value == pytest.approx(found.value - found.lo) == pytest.approx(se * t.ppf(0.975, df))


def test_where_nothing_moves_zero_is_within_in_nearly_all_draws() -> None:
    rng = np.random.default_rng(1)
    inside = [d.lo < 0 < d.hi for _ in range(400) if (d := doublings(np.exp(rng.normal(size=50)).tolist())) is not None]
    assert 0.91 < np.mean(inside) < 0.99


def test_few_rounds_show_nothing() -> None:
    assert doublings([1.0] * (LEAST - 1)) is None and doublings([1.0] * LEAST) is not None
