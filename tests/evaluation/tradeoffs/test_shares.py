"""How much of the utility private data decide, and what each user's examples contribute."""

from __future__ import annotations

import numpy as np
import pytest

from fedprint.evaluation.statistics import mean_ap_statistic
from fedprint.evaluation.tradeoffs.shares import jackknife_parts, mean_parts, private_share, worst_users
from fedprint.rng import numpy_rng

USERS = np.repeat(np.arange(40), 25)


def hits(rate: float, seed: int) -> dict[str, tuple[float, float]]:
    """Return the parts of a model that is right on about ``rate`` of the examples, the easiest ones."""
    easy, own = np.random.default_rng(99).random(len(USERS)), np.random.default_rng(seed).random(len(USERS))
    return mean_parts(easy + 0.02 * own < rate, USERS)


def test_parts_of_a_mean_add_up_to_it_and_leave_out_what_does_not_count() -> None:
    values = np.array([1.0, 0.0, np.nan, 1.0])
    parts = mean_parts(values, [7, 7, 7, 9])
    assert parts == {"7": (1.0, 2.0), "9": (1.0, 1.0)}


def test_pseudo_values_have_the_metric_as_their_mean_and_follow_its_users() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random((len(USERS), 3)) < 0.3
    noise = np.where(USERS < 5, 30.0, 0.6)[:, None]
    statistic = mean_ap_statistic(labels + noise * rng.standard_normal(labels.shape), labels)
    parts = jackknife_parts(statistic, USERS)
    own = np.array([total for total, _ in parts.values()])
    assert own.mean() == pytest.approx(statistic(np.ones(len(USERS))))
    assert own[[parts_of < 5 for parts_of in map(int, parts)]].mean() < own.mean() - 0.1, "users with noise cost AP"


def test_half_of_the_gain_is_half_a_share_with_a_paired_interval() -> None:
    found = private_share(hits(0.7, 1), hits(0.9, 2), hits(0.5, 3), numpy_rng(0))
    assert found.gain.value == pytest.approx(0.4, abs=0.03) and found.lost.value == pytest.approx(0.2, abs=0.03)
    assert found.share is not None and found.share.lo < 0.5 < found.share.hi
    assert found.share.hi - found.share.lo < 0.15, "the same examples: pairing makes the interval short"


def test_where_public_data_do_as_well_nothing_is_divided() -> None:
    found = private_share(hits(0.7, 1), hits(0.9, 2), hits(0.9, 3), numpy_rng(0))
    assert found.share is None and found.gain.lo <= 0 <= found.gain.hi
    assert found.lost.lo > 0.1
    better = private_share(hits(0.7, 1), hits(0.5, 2), hits(0.9, 3), numpy_rng(0))
    assert better.share is None and better.gain.hi < 0, "public data are better than private data"


def test_an_error_is_a_gain_the_other_way_round() -> None:
    up = private_share(hits(0.7, 1), hits(0.9, 2), hits(0.5, 3), numpy_rng(0))
    down = private_share(hits(0.3, 1), hits(0.1, 2), hits(0.5, 3), numpy_rng(0), higher_is_better=False)
    assert down.gain.value > 0.3 and down.share is not None and up.share is not None
    assert down.share.value == pytest.approx(up.share.value, abs=0.1)


def test_the_worst_tenth_of_users_is_one_user_at_least() -> None:
    few = {"1": (1.0, 2.0), "2": (9.0, 10.0)}
    assert worst_users(few) == 0.5 and worst_users(few, higher_is_better=False) == 0.9
    assert worst_users({str(i): (i / 100, 1.0) for i in range(100)}) == pytest.approx(0.045)
