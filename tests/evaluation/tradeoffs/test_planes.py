"""Numbers of several seeds: pooled as reports pool them, the strongest adversary, paired reductions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_points import CHANCE, fake_point

from fedprint.evaluation.tradeoffs.planes import (
    STRONGEST,
    attack_row,
    difference_row,
    lost_row,
    normalised_row,
    ratio_row,
    reduction_row,
)
from fedprint.evaluation.tradeoffs.tradeoff import Point, UtilityNumber, pareto_front, point_from_json, point_json

PLAIN = {seed: fake_point(0.8, 0.9, seed, defence="none") for seed in range(3)}


def test_the_interval_holds_users_and_seeds() -> None:
    points = [fake_point(ap, 0.8, seed) for seed, ap in enumerate((0.3, 0.4, 0.5))]
    row = attack_row(points)
    assert row["value"] == pytest.approx(0.4) and row["n_seeds"] == 3
    half = 4.302653 * 0.1 / np.sqrt(3)  # Student's t with 2 degrees of freedom
    assert row["hi"] - row["value"] == pytest.approx(half, rel=1e-4)
    alike = attack_row([fake_point(0.4, 0.8, seed) for seed in range(3)])
    assert alike["hi"] - alike["value"] == pytest.approx(0.03), "no less than the users' share"
    assert attack_row(points[:1])["n_seeds"] == 1


def test_each_seed_has_its_strongest_adversary() -> None:
    points = [fake_point({"naive": 0.3, "adaptive": 0.5}, 0.8, 0), fake_point({"naive": 0.6, "adaptive": 0.4}, 0.8, 1)]
    assert attack_row(points, STRONGEST)["value"] == pytest.approx(0.55)
    assert [attack_row(points, name)["value"] for name in ("naive", "adaptive")] == pytest.approx([0.45, 0.45])
    assert ratio_row(points, "naive")["value"] == pytest.approx(0.45 / CHANCE)


def test_utility_is_a_share_of_the_same_seeds_undefended_one() -> None:
    plain = {0: fake_point(0.8, 0.9, 0), 1: fake_point(0.8, 0.6, 1)}
    points = [fake_point(0.3, 0.45, 0), fake_point(0.3, 0.6, 1)]
    row = normalised_row(points, plain)
    assert row["value"] == pytest.approx((0.5 + 1.0) / 2)
    assert row["unit"] == "ratio" and row["lo"] < row["value"] < row["hi"]


def test_an_errors_interval_is_turned_round() -> None:
    def stars(value: float) -> UtilityNumber:
        return UtilityNumber(
            metric="mae", value=value, lo=value - 0.1, hi=value + 0.2, chance=1.5, n_questions=9, n_users=3
        )

    plain = replace(PLAIN[0], utility=stars(0.5))
    row = normalised_row([replace(PLAIN[0], utility=stars(1.0))], {0: plain})
    assert (row["value"], row["lo"], row["hi"]) == pytest.approx((0.5, 0.3, 0.6))


def test_a_reduction_is_paired_user_by_user() -> None:
    row = reduction_row([fake_point(0.2, 0.8, seed) for seed in range(3)], PLAIN)
    assert row is not None and row["value"] == pytest.approx(0.75, abs=0.01)
    assert row["hi"] - row["lo"] < 0.05, "users in proportion leave nothing to vary"
    without = replace(PLAIN[0], attacks=tuple(replace(number, by_user={}) for number in PLAIN[0].attacks))
    assert reduction_row([without], PLAIN) is None


def test_a_difference_of_two_points_is_paired_user_by_user() -> None:
    lower, higher = ([fake_point(ap, 0.8, seed) for seed in range(3)] for ap in (0.3, 0.4))
    row = difference_row(lower, {point.seed: point for point in higher}, "naive", "naive")
    assert row is not None and row["value"] == pytest.approx(-0.1, abs=0.01) and (row["n_users"], row["n_seeds"]) == (
        20, 3
    )  # fmt: skip
    assert row["hi"] < -0.08, "each user alone has an interval as wide as that"
    without = replace(PLAIN[0], attacks=tuple(replace(number, by_user={}) for number in PLAIN[0].attacks))
    assert difference_row([without], PLAIN, "naive", "naive") is None


@pytest.mark.parametrize(("metric", "lost"), [("accuracy", 0.1), ("mae", -0.1)])
def test_lost_utility_is_paired_and_positive_where_the_other_is_better(metric: str, lost: float) -> None:
    def of(value: float) -> Point:
        parts = {str(user): (100 * value * (0.5 + user / 20), 100.0) for user in range(21)}
        point = fake_point(0.3, value)
        return replace(point, utility=replace(point.utility, metric=metric, by_user=parts))

    row = lost_row([of(0.6)], {0: of(0.7)})
    assert row is not None and row["value"] == pytest.approx(lost) and row["lo"] < lost < row["hi"]
    assert row["hi"] - row["lo"] < 0.05 < 0.2, "users differ by a factor of three"
    assert lost_row([fake_point(0.3, 0.6)], {0: of(0.7)}) is None
    fewer = replace(of(0.7).utility, by_user={str(user): (1.0, 9.0) for user in range(21)})
    assert lost_row([of(0.6)], {0: replace(of(0.7), utility=fewer)}) is None, "other test examples"


def test_the_front_is_what_no_place_beats() -> None:
    points = [(0.5, 0.9), (0.2, 0.4), (0.2, 0.6), (0.3, 0.6), (0.9, 0.9), (0.1, 0.1), (0.2, 0.6)]
    slow = [
        i for i, (ap, utility) in enumerate(points)
        if not any((a <= ap and u > utility) or (a < ap and u >= utility) for a, u in points)
        and points.index((ap, utility)) == i
    ]  # fmt: skip
    assert sorted(pareto_front(points)) == slow == [0, 2, 5]
    assert pareto_front(points) == [5, 2, 0]


def test_a_point_survives_its_file() -> None:
    point = fake_point({"naive": 0.3, "adaptive": 0.5}, 0.8)
    assert point_from_json(point_json(point), point.rows) == point
