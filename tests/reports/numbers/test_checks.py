"""The shuffled-label checks of several seeds, judged as one."""

from __future__ import annotations

from typing import Any

import pytest
from scipy import stats

from fedprint.evaluation.shuffled import judge_jointly
from fedprint.reports.numbers.checks import pooled_test
from fedprint.rng import numpy_rng

ATTACKS, LINKAGES, PRIORS, SEEDS = 14, 2, 3, 3


def entry(p_high: float = 0.5, **values: Any) -> dict[str, Any]:
    null = {"null_mean": 0.02, "null_lo": 0.01, "null_hi": 0.05}
    return {"value": 0.03, "p_high": p_high, "p_low": 1 - p_high, **null, "permutations": 9999, "n_users": 60, **values}


def test_one_seed_is_as_it_was_measured() -> None:
    test = pooled_test([entry(0.01)])
    assert (test.p_high, test.null_lo, test.permutations, test.smallest_p) == (0.01, 0.01, 9999, 2e-4)


def test_a_leak_in_every_seed_fails_though_no_seed_alone_could() -> None:
    cells = ATTACKS * LINKAGES * PRIORS
    leak = [entry(1e-4) for _ in range(SEEDS)]
    alone = judge_jointly({f"{cell}/{seed}": pooled_test(leak[:1]) for cell in range(cells) for seed in range(SEEDS)})
    assert alone.passed and len(alone.powerless) == cells * SEEDS
    clean = {str(cell): pooled_test([entry() for _ in range(SEEDS)]) for cell in range(cells)}
    together = judge_jointly({**clean, "0": pooled_test(leak)})
    assert together.failed == ("0",) and not together.powerless


def test_few_users_stay_powerless() -> None:
    assert pooled_test([entry(n_users=3)] * SEEDS).smallest_p > 0.05


def test_without_a_link_p_stays_uniform_and_the_null_narrows() -> None:
    drawn = numpy_rng(0).uniform(size=(2000, SEEDS))
    pooled = [pooled_test([entry(float(p)) for p in seeds]) for seeds in drawn]
    for side in ("p_high", "p_low"):
        assert stats.kstest([getattr(test, side) for test in pooled], "uniform").pvalue > 0.01
    assert pooled[0].null_lo == pytest.approx(0.02 - 0.01 / SEEDS**0.5)
    assert pooled[0].null_hi == pytest.approx(0.02 + 0.03 / SEEDS**0.5)
