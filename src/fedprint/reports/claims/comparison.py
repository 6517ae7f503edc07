"""What a claim says of numbers: comparisons with a bound, all or any of which must hold, and their p-values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from fedprint.evaluation.intervals import Interval
from fedprint.evaluation.rows import Row
from fedprint.evaluation.significance import sides
from fedprint.reports.wording import seed_count


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A number that a claim says lies above ``bound``, or below it where not ``above``.

    ``lo`` and ``hi`` are its 95 % interval over ``n_users`` users and ``n_seeds`` seeds. ``p_chance`` is the one-sided
    p of an exact test that takes the interval's place for "above", where there is one.
    """

    value: float
    lo: float
    hi: float
    bound: float
    above: bool
    n_users: int
    n_seeds: int
    p_chance: float | None = None


@dataclass(frozen=True)
class AllOf:
    """Holds where every part does, fails where one does."""

    parts: tuple[Test, ...]


@dataclass(frozen=True)
class AnyOf:
    """Holds where one part does, fails where every part does."""

    parts: tuple[Test, ...]


Test = Union[Comparison, AllOf, AnyOf]
"""What a claim says of numbers."""


@dataclass(frozen=True, kw_only=True)
class Weight:
    """The p-values against a test not holding (``holds``), and against it not failing (``fails``)."""

    holds: float
    fails: float

    @property
    def two_sided(self) -> float:
        """Twice the smaller of both, at most 1."""
        return min(1.0, 2 * min(self.holds, self.fails))


def compared(row: Row, bound: float, *, above: bool = True) -> Comparison:
    """Return a row's number beside a bound; an end of its interval that is not known is infinite."""
    lo, hi = (end if row[name] is None else row[name] for name, end in (("lo", -math.inf), ("hi", math.inf)))
    return Comparison(
        value=row["value"],
        lo=lo,
        hi=hi,
        bound=bound,
        above=above,
        n_users=int(row["n_users"]),
        n_seeds=seed_count(row),
    )


def leaves(test: Test) -> Iterator[Comparison]:
    """Yield the comparisons of a test."""
    if isinstance(test, Comparison):
        yield test
        return
    for part in test.parts:
        yield from leaves(part)


def weigh(test: Test) -> Weight:
    """Return the p-values of a test.

    All of k parts hold: the largest p of the parts, an intersection-union test (Berger, Technometrics 1982, 24:295).
    One of them fails: k times the smallest, Bonferroni's. For any of them it is the other way round.
    """
    if isinstance(test, Comparison):
        return _weigh_one(test)
    parts = [weigh(part) for part in test.parts]
    holds, fails = [part.holds for part in parts], [part.fails for part in parts]
    if isinstance(test, AllOf):
        return Weight(holds=max(holds), fails=min(1.0, len(parts) * min(fails)))
    return Weight(holds=min(1.0, len(parts) * min(holds)), fails=max(fails))


def _weigh_one(one: Comparison) -> Weight:
    found = sides(Interval(value=one.value, lo=one.lo, hi=one.hi), one.bound, one.n_users)
    if not one.above:
        return Weight(holds=found.below, fails=found.above)
    return Weight(holds=found.above if one.p_chance is None else one.p_chance, fails=found.below)
