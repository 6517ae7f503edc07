"""Privacy against utility: the point of one run under one defence, and the scale on which defences are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import Row
from fedprint.evaluation.tradeoffs.shares import Parts
from fedprint.types import FedprintError, Linkage

LINKAGE: Linkage = "update"
"""A point's AP is that of re-identification from single updates, the papers' strongest setting (papers.md 2.6)."""

_NOBODY: Mapping[str, Any] = {}
_NUMBERS = ("value", "lo", "hi", "chance", "n_questions", "n_users")


@dataclass(frozen=True, kw_only=True)
class UtilityNumber:
    """The federated model's utility on the test set, with its interval over users and the level of random scores.

    ``by_user`` is what each user's examples contribute (evaluation/tradeoffs/shares.py).
    """

    metric: str
    value: float
    lo: float
    hi: float
    chance: float
    n_questions: int
    n_users: int
    by_user: Parts = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AttackNumber:
    """AP (fraction) of one adversary's attack under one view; ``by_user`` is user id -> AP.

    ``linked_by_user`` is that of all updates of a device, empty where it was not measured. ``selected``: the adversary
    chose this attack, on prior data. Other configured attacks are measured too.
    """

    adversary: str
    view: str
    attack: str
    value: float
    lo: float
    hi: float
    chance: float
    n_questions: int
    n_users: int
    by_user: Mapping[str, float]
    linked_by_user: Mapping[str, float] = field(default_factory=dict)
    selected: bool = True

    def of_users(self, linkage: Linkage) -> Mapping[str, float]:
        """Return user id -> AP of one update, or of all updates of a device together (``device``)."""
        return self.by_user if linkage == LINKAGE else self.linked_by_user


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a plane: one configuration, prior and seed, trained, attacked and evaluated.

    ``key`` names the configuration together with the code that computed it. ``overhead`` holds the number of examples
    before and after the defence, and seconds. ``rows`` are all measurements of the evaluate stage, ``analyses`` those
    of analyses and the epsilons.
    """

    key: str
    dataset: str
    prior: str
    seed: int
    defence: str
    defence_params: str | None
    defended: str | None
    utility: UtilityNumber
    attacks: tuple[AttackNumber, ...]
    overhead: Mapping[str, float | None]
    rows: tuple[Row, ...]
    analyses: tuple[Row, ...] = ()

    def attack(self, adversary: str) -> AttackNumber:
        """Return the attack that one adversary chose, the strongest over its views.

        Raises FedprintError when it did not attack.
        """
        chosen = [number for number in self.attacks if number.adversary == adversary and number.selected]
        if not chosen:
            known = ", ".join(sorted({number.adversary for number in self.attacks}))
            raise FedprintError(f"adversary '{adversary}' did not attack this point; choose of {known}")
        return max(chosen, key=lambda number: number.value)

    @property
    def strongest(self) -> AttackNumber:
        """The largest AP of any adversary with any configured attack, chosen or not: an AP ceiling limits this one."""
        return max(self.attacks, key=lambda number: number.value)

    def strongest_by(self, linkage: Linkage) -> AttackNumber | None:
        """Return :attr:`strongest` for single updates, or for all updates of a device together (``device``).

        None where that was not measured.
        """
        if linkage == LINKAGE:
            return self.strongest
        linked = [_attack_number(row) for row in _answered(self.rows, linkage)]
        return max(linked, key=lambda number: number.value, default=None)

    def strongest_over(self, updates: int) -> AttackNumber | None:
        """Return :attr:`strongest` for ``updates`` linked updates of a device; None where that was not measured."""
        if updates == 1:
            return self.strongest
        wanted = {"analysis": "linked", "metric": "ap", "linked_updates": updates}
        rows = [row for row in self.analyses if all(row.get(key) == value for key, value in wanted.items())]
        numbers = (_attack_number(row) for row in _configured(rows))
        return max(numbers, key=lambda number: number.value, default=None)

    @property
    def chosen(self) -> AttackNumber:
        """The largest AP among the attacks that the adversaries chose."""
        return max((number for number in self.attacks if number.selected), key=lambda number: number.value)

    @property
    def data_factor(self) -> float:
        """Examples on defended devices after the defence over those before; 1 without a defence."""
        before, after = self.overhead.get("examples_before"), self.overhead.get("examples_after")
        return after / before if before and after else 1.0


def point_of(
    key: str,
    rows: Sequence[Row],
    by_user: Mapping[str, Any],
    overhead: Mapping[str, float | None],
    utility_by_user: Parts | None = None,
    linked_by_user: Mapping[str, Any] = _NOBODY,
) -> Point:
    """Return the point of an evaluation's ``rows``.

    ``by_user`` is details.json's ``ap_by_user``: adversary -> attack -> user -> AP, and ``linked_by_user`` the same of
    the chosen attacks over all updates of a device. Random scores count only where no other attack was configured.
    Raises FedprintError when a number is missing.
    """
    utility = next((row for row in rows if row["attack"] is None and _is_utility(row)), None)
    attacks = _answered(rows, LINKAGE)
    if utility is None or not any(row["selected"] for row in attacks):
        raise FedprintError(f"point {key}: no {'utility' if utility is None else 'chosen attack'} was measured")
    return Point(
        key=key,
        **{name: utility[name] for name in ("dataset", "prior", "seed", "defence", "defence_params", "defended")},
        utility=UtilityNumber(**{name: utility[name] for name in ("metric", *_NUMBERS)}, by_user=utility_by_user or {}),
        attacks=tuple(_attack_number(row, by_user, linked_by_user) for row in attacks),
        overhead=dict(overhead),
        rows=tuple(rows),
    )


def point_json(point: Point) -> dict[str, Any]:
    """Return the point without its rows, which are written to separate files."""
    values = asdict(point)
    del values["rows"], values["analyses"]
    return values


def point_from_json(values: Mapping[str, Any], rows: Sequence[Row], analyses: Sequence[Row] = ()) -> Point:
    """Return the point of :func:`point_json`."""
    return Point(
        **{
            **values,
            "utility": UtilityNumber(**values["utility"]),
            "attacks": tuple(AttackNumber(**number) for number in values["attacks"]),
            "rows": tuple(rows),
            "analyses": tuple(analyses),
        }
    )


def normalised_utility(point: Point, undefended: Point) -> float:
    """Return the utility as a fraction of the utility without a defence (papers.md 2.6).

    ``value / undefended``, which may exceed 1; for an error, where lower is better,
    ``(chance - error) / (chance - error undefended)``, which can be negative. ``undefended`` has the same data
    and seed. Raises FedprintError where the two cannot be compared.
    """
    return relative(point.utility.value, undefended.utility, point.utility.metric)


def relative(value: float, undefended: UtilityNumber, metric: str) -> float:
    """Return a utility ``value`` in ``metric`` on the scale of :func:`normalised_utility`."""
    if metric != undefended.metric:
        raise FedprintError(f"a utility in {metric} has no share of one in {undefended.metric}")
    higher = METRICS[metric].higher_is_better
    gain, whole = (
        (value, undefended.value) if higher else (undefended.chance - value, undefended.chance - undefended.value)
    )
    if whole <= 0:
        raise FedprintError(
            f"the undefended model has {undefended.metric} {undefended.value:.4g}, no better than chance "
            f"({undefended.chance:.4g}): train longer before comparing defences"
        )
    return gain / whole


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the positions of the (attack, utility) points that no other beats, least attack first.

    One point beats another with less attack and no less utility, or with more utility and no more attack. Of equal
    points the first stays.
    """
    best: list[int] = []
    for position in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not best or points[position][1] > points[best[-1]][1]:
            best.append(position)
    return best


def _is_utility(row: Row) -> bool:
    return bool(row["training"] == "federated" and row["metric"] != "mae_gain_over_median")


def _answered(rows: Sequence[Row], linkage: Linkage) -> Sequence[Row]:
    return _configured([row for row in rows if row["metric"] == "ap" and row["linkage"] == linkage])


def _configured(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of all attacks but random scores; those of random scores where there is no other."""
    return [row for row in rows if row["attack"] != "chance"] or rows


def _attack_number(
    row: Row, by_user: Mapping[str, Any] = _NOBODY, linked_by_user: Mapping[str, Any] = _NOBODY
) -> AttackNumber:
    names = ("adversary", "view", "attack", "selected", *_NUMBERS)
    return AttackNumber(
        **{name: row[name] for name in names},
        by_user=_users_of(by_user, row),
        linked_by_user=_users_of(linked_by_user, row),
    )


def _users_of(by_user: Mapping[str, Any], row: Row) -> dict[str, float]:
    aps = by_user.get(row["adversary"], {}).get(row["attack"], {})
    return {str(user): float(ap) for user, ap in aps.items()}
