"""A point of a plane: the runs of several seeds, as values with intervals over seeds and users.

``points`` are one configuration under different seeds; ``undefended`` maps each seed to its point without a defence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedprint.evaluation.intervals import Interval, difference_interval, ratio_interval
from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import POOLED, Row, pool_seeds
from fedprint.evaluation.tradeoffs.shares import PrivateShare, private_share, worst_users
from fedprint.evaluation.tradeoffs.tradeoff import LINKAGE, AttackNumber, Point, relative
from fedprint.rng import numpy_rng
from fedprint.types import Linkage

STRONGEST = "strongest"
"""Instead of an adversary's name: in each seed the adversary and the configured attack with the largest AP."""
BEST = "best"
"""Instead of an adversary's name: in each seed the adversary whose chosen attack has the largest AP."""


def attack_row(points: Sequence[Point], adversary: str = STRONGEST) -> Row:
    """Return the mean AP of one adversary, or of the strongest in each seed."""
    return over_seeds([_attack(point, adversary) for point in points])


def ratio_row(points: Sequence[Point], adversary: str = STRONGEST) -> Row:
    """Return the same AP over chance, seed by seed."""
    return over_seeds([_over_chance(_attack(point, adversary)) for point in points])


def normalised_row(points: Sequence[Point], undefended: Mapping[int, Point]) -> Row:
    """Return the mean normalised utility; the undefended utility of a seed counts as exact."""
    return over_seeds([_normalised(point, undefended[point.seed]) for point in points])


def private_rows(
    points: Sequence[Point], undefended: Mapping[int, Point], public: Mapping[int, Point]
) -> dict[str, Row] | None:
    """Return what private data decide: ``private_gain``, ``utility_lost`` and ``private_share``.

    ``public`` maps each seed to the point of a federation that trained on public data alone. ``private_share`` is there
    where in every seed the interval of the gain is above 0. None without values per user.
    """
    shares = [_private(point, undefended[point.seed], public[point.seed]) for point in points if point.seed in public]
    known = [share for share in shares if share is not None]
    if not known or len(known) < len(points):
        return None
    made = {}
    for metric, name in (("private_gain", "gain"), ("utility_lost", "lost"), ("private_share", "share")):
        intervals = [getattr(share, name) for share in known]
        if all(interval is not None for interval in intervals):
            pairs = zip(points, intervals, strict=True)
            made[metric] = over_seeds([_interval_row(point, interval, metric) for point, interval in pairs])
    return made


def worst_row(points: Sequence[Point]) -> Row | None:
    """Return the utility of the tenth of the users who are worst off, without an interval in a seed.

    None without values per user, and for the mean AP over classes, which a single user does not have.
    """
    metric = points[0].utility.metric
    if metric == "mean_ap" or not all(point.utility.by_user for point in points):
        return None
    higher = METRICS[metric].higher_is_better
    worst = [worst_users(point.utility.by_user, higher_is_better=higher) for point in points]
    spots = (Interval(value=value, lo=value, hi=value) for value in worst)
    return over_seeds([_interval_row(point, spot, "worst_users") for point, spot in zip(points, spots, strict=True)])


def lost_row(points: Sequence[Point], others: Mapping[int, Point]) -> Row | None:
    """Return how much less utility ``points`` have than ``others``, in the metric's unit, paired over the test users.

    Positive where the others are better, for an error too. None without values per user of the same test examples.
    """
    intervals = [_lost(point, others[point.seed]) for point in points if point.seed in others]
    known = [interval for interval in intervals if interval is not None]
    if not known or len(known) < len(points):
        return None
    pairs = zip(points, known, strict=True)
    return over_seeds([_interval_row(point, interval, "utility_lost") for point, interval in pairs])


def _lost(point: Point, other: Point) -> Interval | None:
    own, theirs = point.utility.by_user, other.utility.by_user
    users = sorted(set(own) & set(theirs))
    numbers = [theirs[user][1] for user in users]
    if not users or [own[user][1] for user in users] != numbers:
        return None
    sign = 1.0 if METRICS[point.utility.metric].higher_is_better else -1.0
    rng = numpy_rng(point.seed, "interval", "utility_lost", point.dataset, point.prior, point.defence_params)
    return ratio_interval([sign * (theirs[user][0] - own[user][0]) for user in users], numbers, rng, bounds=None)


def _private(point: Point, undefended: Point, public: Point) -> PrivateShare | None:
    own, plain, floor = (each.utility.by_user for each in (point, undefended, public))
    if not (own and plain and floor):
        return None
    rng = numpy_rng(point.seed, "interval", "private_share", point.dataset, point.prior, point.defence_params)
    higher = METRICS[point.utility.metric].higher_is_better
    return private_share(own, plain, floor, rng, higher_is_better=higher)


def _interval_row(point: Point, interval: Interval, metric: str) -> Row:
    numbers = {"value": interval.value, "lo": interval.lo, "hi": interval.hi, "chance": None}
    counted = {"n_questions": point.utility.n_questions, "n_users": point.utility.n_users}
    unit = METRICS[metric].unit if metric == "private_share" else METRICS[point.utility.metric].unit
    return {**_numbers(point, {**numbers, **counted}, metric), "unit": unit}


def reduction_row(
    points: Sequence[Point],
    others: Mapping[int, Point],
    adversary: str = STRONGEST,
    against: str | None = None,
    linkage: Linkage = LINKAGE,
) -> Row | None:
    """Return ``1 - AP / others' AP``, paired user by user within each seed; None without values per user.

    The AP is of one update, or with the ``linkage`` "device" of all updates of a device.

    The others' AP is that of the adversary ``against``. By default the others are undefended, and it is the strongest
    adversary there, because there is no defence to adapt to: with the attack that it chose, or, where ``adversary`` is
    the strongest, with any configured attack.
    """
    other = against or (STRONGEST if adversary == STRONGEST else BEST)
    pairs = [(point, others[point.seed]) for point in points if point.seed in others]
    rows = [_reduction(point, rival, adversary, other, linkage) for point, rival in pairs]
    known = [row for row in rows if row is not None]
    return over_seeds(known) if known and len(known) == len(rows) else None


def difference_row(points: Sequence[Point], others: Mapping[int, Point], adversary: str, against: str) -> Row | None:
    """Return an adversary's AP minus that of the adversary ``against`` under ``others``, paired user by user.

    None without values per user.
    """
    rows = [_difference(point, others[point.seed], adversary, against) for point in points if point.seed in others]
    known = [row for row in rows if row is not None]
    return over_seeds(known) if known and len(known) == len(rows) else None


def linked_row(points: Sequence[Point], adversary: str) -> Row | None:
    """Return the mean AP where the adversary links all updates of a device and attacks them together.

    None where a seed has no such number, for example where the server sees only sums of updates.
    """
    rows = [row for point in points if (row := _linked(point, number_of(point, adversary))) is not None]
    return over_seeds(rows) if rows and len(rows) == len(points) else None


def strongest_row(points: Sequence[Point], updates: int) -> Row | None:
    """Return the mean over seeds of the largest AP over ``updates`` linked updates, by any adversary and attack.

    None where a seed has no such number. It may be another attack than the best on single updates.
    """
    numbers = [number for point in points if (number := point.strongest_over(updates)) is not None]
    if not numbers or len(numbers) < len(points):
        return None
    return over_seeds([_numbers(p, asdict(number), "ap") for p, number in zip(points, numbers, strict=True)])


def _linked(point: Point, number: AttackNumber) -> Row | None:
    wanted = {"linkage": "device", "adversary": number.adversary, "view": number.view, "attack": number.attack}
    wanted |= {"metric": "ap", "world": "closed"}
    rows = [row for row in point.rows if all(row.get(key) == value for key, value in wanted.items())]
    return _numbers(point, rows[0], "ap") if rows else None


def over_seeds(rows: Sequence[Row]) -> Row:
    """Return one row for rows that differ in their seed only, pooled as in every report."""
    if len(rows) == 1:
        return {**rows[0], "n_seeds": 1}
    (pooled,) = [row for row in pool_seeds(rows) if row["seed"] == POOLED]
    return pooled


def number_of(point: Point, adversary: str) -> AttackNumber:
    """Return a point's number of an adversary, or of :data:`STRONGEST` or :data:`BEST`."""
    if adversary == STRONGEST:
        return point.strongest
    return point.chosen if adversary == BEST else point.attack(adversary)


def _attack(point: Point, adversary: str) -> Row:
    return _numbers(point, asdict(number_of(point, adversary)), "ap")


def _over_chance(row: Row) -> Row:
    scaled = {key: row[key] / row["chance"] for key in ("value", "lo", "hi", "chance")}
    return {**row, **scaled, "metric": "ap_over_chance", "unit": METRICS["ap_over_chance"].unit}


def _normalised(point: Point, undefended: Point) -> Row:
    utility = point.utility
    value, one, two, chance = (
        relative(number, undefended.utility, utility.metric)
        for number in (utility.value, utility.lo, utility.hi, utility.chance)
    )
    numbers = {**asdict(utility), "value": value, "lo": min(one, two), "hi": max(one, two), "chance": chance}
    return _numbers(point, numbers, "normalised_utility")


def _reduction(point: Point, other: Point, adversary: str, against: str, linkage: Linkage) -> Row | None:
    left, right = number_of(point, adversary), number_of(other, against)
    if not (both := _of_both(left.of_users(linkage), right.of_users(linkage))):
        return None
    about = "ap_reduction" if linkage == LINKAGE else "linked_reduction"
    kept = ratio_interval(*both, _paired_rng(point, about, adversary), bounds=None)
    return _paired(point, left, Interval(value=1 - kept.value, lo=1 - kept.hi, hi=1 - kept.lo), both, "ap_reduction")


def _difference(point: Point, other: Point, adversary: str, against: str) -> Row | None:
    left, right = number_of(point, adversary), number_of(other, against)
    if not (both := _of_both(left.by_user, right.by_user)):
        return None
    gap = difference_interval(*both, _paired_rng(point, "ap_difference", adversary))
    return _paired(point, left, gap, both, "ap_difference")


def _of_both(left: Mapping[str, float], right: Mapping[str, float]) -> tuple[list[float], list[float]] | None:
    """Return both APs of every user who has two, None where nobody has."""
    users = sorted(set(left) & set(right))
    return ([left[user] for user in users], [right[user] for user in users]) if users else None


def _paired_rng(point: Point, metric: str, adversary: str) -> np.random.Generator:
    """Return the generator of a paired interval: not by the key, which changes with the code."""
    about = (point.dataset, point.prior, point.defence, point.defence_params)
    return numpy_rng(point.seed, "interval", metric, *map(str, about), adversary)


def _paired(
    point: Point, number: AttackNumber, interval: Interval, both: tuple[list[float], list[float]], metric: str
) -> Row:
    ends = {"value": interval.value, "lo": interval.lo, "hi": interval.hi, "chance": 0.0}
    return _numbers(point, {**ends, "n_questions": number.n_questions, "n_users": len(both[0])}, metric)


def _numbers(point: Point, values: Mapping[str, Any], metric: str) -> Row:
    numbers = {name: values[name] for name in ("value", "lo", "hi", "chance", "n_questions", "n_users")}
    return {"metric": metric, "unit": METRICS[metric].unit, **numbers, "seed": point.seed}
