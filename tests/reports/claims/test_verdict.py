"""The decision on a table of claims: all or any of a claim's comparisons, three words, one correction."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprint.evaluation.significance import holm
from fedprint.reports.claims.comparison import AllOf, AnyOf, Comparison, Test, compared, leaves, weigh
from fedprint.reports.claims.verdict import (
    CLAIMS,
    UNTESTED,
    Claim,
    Finding,
    Judged,
    Verdict,
    decide,
    read_verdicts,
    together,
    verdict_csv,
)


def number(value: float, *, above: bool = True, half: float = 1.0, seeds: int = 3, users: int = 10_000) -> Comparison:
    """Return a number beside 0."""
    return Comparison(
        value=value, lo=value - half, hi=value + half, bound=0.0, above=above, n_users=users, n_seeds=seeds
    )


def decided(*tests: Test | None) -> list[Verdict]:
    claims = [Claim(str(place), "text", "1", None) for place in range(len(tests))]
    return decide([
        Judged(claim=claim, finding=Finding(test=test, numbers="n"), member="m", dataset="d")
        for claim, test in zip(claims, tests, strict=True)
    ])  # fmt: skip


def states(*tests: Test | None) -> list[str]:
    return [verdict.state for verdict in decided(*tests)]


@pytest.mark.parametrize(
    ("test", "state"),
    [
        (number(1.1), "holds"), (number(0.9), "undecided"), (number(-0.9), "undecided"), (number(-1.1), "fails"),
        (number(-1.1, above=False), "holds"), (number(1.1, above=False), "fails"), (None, "untested"),
        (AllOf((number(2), number(3))), "holds"), (AllOf((number(2), number(0.9))), "undecided"),
        (AllOf((number(2), number(-2))), "fails"), (AllOf((number(2), number(-1.1))), "undecided"),
        (AnyOf((number(2), number(-2))), "holds"), (AnyOf((number(-2), number(-2))), "fails"),
        (AnyOf((number(1.1), number(-2))), "undecided"), (AnyOf((number(-2), number(0.1))), "undecided"),
        (AllOf((AnyOf((number(2), number(-2))), number(2))), "holds"),
    ],
)  # fmt: skip
def test_an_interval_decides_and_a_point_never_does(test: Test | None, state: str) -> None:
    assert states(test) == [state]


def test_several_claims_are_corrected_for_together() -> None:
    assert states(number(1.1)) == ["holds"]
    assert states(number(1.1), number(0.5)) == ["undecided", "undecided"]
    assert states(number(1.1), number(3.0)) == ["holds", "holds"], "Holm goes on with one claim less"
    assert states(number(1.1), None, number(9.0, seeds=2)) == ["holds", "untested", "undecided"], "not counted"
    p = [weigh(test).two_sided for test in (number(1.2), number(2.0))]
    assert [verdict.p for verdict in decided(number(1.2), number(2.0))] == holm(p)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_all_and_any_mirror_each_other(values: list[float]) -> None:
    parts, mirrored = (tuple(number(value, above=side) for value in values) for side in (True, False))
    every, some = weigh(AllOf(parts)), weigh(AnyOf(mirrored))
    assert (every.holds, every.fails) == pytest.approx((some.fails, some.holds))
    assert every.holds >= max(weigh(part).holds for part in parts) - 1e-12
    assert every.fails >= min(weigh(part).fails for part in parts) - 1e-12


def test_the_fewest_users_and_seeds_stand_with_a_verdict() -> None:
    (found,) = decided(AllOf((number(9, seeds=5, users=40), AnyOf((number(9, users=30),)))))
    assert (found.n_users, found.n_seeds) == (30, 3) and found.basis.startswith("n 30, 3 seeds, adjusted p ")
    assert decided(None)[0].basis == ""


def test_verdicts_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = decided(number(1.1), None, number(9.0, seeds=2))
    (tmp_path / CLAIMS).write_text(verdict_csv(made))
    assert read_verdicts(tmp_path / CLAIMS) == made


def test_an_exact_p_takes_the_intervals_place_above_only() -> None:
    exact = Comparison(value=0.1, lo=-1, hi=1, bound=0, above=True, n_users=50, n_seeds=3, p_chance=0.001)
    assert weigh(exact).holds == 0.001 and weigh(exact).fails > 0.4


def test_an_end_that_is_not_known_is_infinite() -> None:
    found = compared({"value": 1.0, "lo": None, "hi": 2.0, "n_users": 3}, 0.0)
    assert (found.lo, found.hi, found.n_seeds) == (-math.inf, 2.0, 1)


def test_findings_together_are_all_asked() -> None:
    found = together([Finding(test=number(1), numbers="a"), UNTESTED, Finding(test=number(2), numbers="b")])
    assert found.test is not None and len(list(leaves(found.test))) == 2 and found.numbers == "a; b"
    assert together([UNTESTED]) == UNTESTED
