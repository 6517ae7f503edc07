from __future__ import annotations

import numpy as np
import pytest

from fedprint.analyses.trials import AnswerSet, Trial
from fedprint.evaluation.intervals import gain_interval, student_half_width
from fedprint.evaluation.judge import Setting, judge
from fedprint.evaluation.statistics import top1_statistic
from fedprint.types import FedprintError

USERS, PER_USER, SEEDS = 30, 6, 5


def _tables(rng: np.random.Generator, truth: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """Return (s, q, 3) scores: at seed s each answer is right with chance ``accuracy[s]``, else the next option."""
    right = rng.random((len(accuracy), len(truth))) < accuracy[:, None]
    return np.eye(3)[np.where(right, truth, (truth + 1) % 3)] + 1e-6 * rng.random((len(accuracy), len(truth), 3))


def _trial(first: np.ndarray, second: np.ndarray | None, metrics: tuple[str, ...]) -> Trial:
    rows = np.arange(first.shape[-2])
    return Trial(
        questions="q", rows=rows, options=np.arange(3), scores=first, keys={}, metrics=metrics, baseline=second
    )


def _truth(rng: np.random.Generator) -> AnswerSet:
    return AnswerSet(
        name="q", answers=rng.integers(0, 3, USERS * PER_USER), users=np.repeat(np.arange(USERS), PER_USER)
    )


def test_the_gain_is_the_mean_difference_over_seeds() -> None:
    rng = np.random.default_rng(0)
    truth = _truth(rng)
    first, second = (_tables(rng, truth.answers, np.full(SEEDS, level)) for level in (0.9, 0.7))
    (found,) = judge(_trial(first, second, ("mtl_gain",)), truth, Setting(seed=0))
    hits = [(table.argmax(2) == truth.answers).mean() for table in (first, second)]
    assert found.value == pytest.approx(hits[0] - hits[1])
    assert 0 < found.lo < found.value < found.hi < 0.4
    assert found.chance == 0


def test_equal_answers_gain_nothing_and_the_interval_holds_zero() -> None:
    rng = np.random.default_rng(0)
    truth = _truth(rng)
    same = _tables(rng, truth.answers, np.full(SEEDS, 0.8))
    for found in judge(_trial(same, same, ("mtl_gain", "mtl_gain_ap")), truth, Setting(seed=0)):
        assert found.value == 0
        assert found.lo <= 0 <= found.hi


def test_seeds_that_differ_widen_the_interval() -> None:
    """The mean is the same; in one case every seed has it, in the other they scatter."""
    rng = np.random.default_rng(1)
    truth = _truth(rng)
    base = _tables(rng, truth.answers, np.full(SEEDS, 0.6))
    steady, scattered = (_tables(rng, truth.answers, 0.6 + spread * np.linspace(-1, 1, SEEDS)) for spread in (0.0, 0.3))
    widths = []
    for table in (steady, scattered):
        (found,) = judge(_trial(table, base, ("mtl_gain",)), truth, Setting(seed=0))
        widths.append(found.hi - found.lo)
    assert widths[1] > 1.5 * widths[0]


def test_the_interval_covers_a_true_gain_of_zero_about_as_often_as_it_says() -> None:
    """Both attacks are equally good on average, but users and seeds scatter: about 95 of 100, never much below."""
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng([7, seed])
        truth = _truth(rng)
        pairs = []
        for _ in range(SEEDS):
            levels = [0.7 + rng.normal(0, 0.05) for _ in range(2)]
            tables = [_tables(rng, truth.answers, np.array([level]))[0] for level in levels]
            pairs.append((top1_statistic(tables[0], truth.answers), top1_statistic(tables[1], truth.answers)))
        found = gain_interval(pairs, truth.users, rng, resamples=50)
        covered += found.lo <= 0 <= found.hi
    assert covered >= 93


def test_student_half_width_by_hand() -> None:
    assert student_half_width(np.array([0.0, 2.0])) == pytest.approx(12.706 * 1.0, rel=1e-3)
    assert student_half_width(np.array([0.3])) == 0


def test_a_gain_without_a_baseline_is_an_error() -> None:
    rng = np.random.default_rng(0)
    truth = _truth(rng)
    table = _tables(rng, truth.answers, np.full(1, 0.9))
    with pytest.raises(FedprintError, match="baseline"):
        judge(_trial(table, None, ("mtl_gain",)), truth, Setting(seed=0))
    with pytest.raises(FedprintError, match="same shape"):
        judge(_trial(table, table[:, :, :2], ("mtl_gain",)), truth, Setting(seed=0))


def test_several_seeds_are_measured_one_by_one_and_averaged() -> None:
    rng = np.random.default_rng(0)
    truth = _truth(rng)
    table = _tables(rng, truth.answers, np.array([0.9, 0.5]))
    metrics = ("attribute_ap", "attribute_top1", "ap", "top1")
    together = {m.metric: m.value for m in judge(_trial(table, None, metrics), truth, Setting(seed=0))}
    apart = [{m.metric: m.value for m in judge(_trial(one, None, metrics), truth, Setting(seed=0))} for one in table]
    assert together == pytest.approx({name: (apart[0][name] + apart[1][name]) / 2 for name in together})
    assert apart[0]["top1"] > apart[1]["top1"] + 0.2


def test_a_metric_of_one_table_refuses_several() -> None:
    rng = np.random.default_rng(0)
    truth = AnswerSet(name="q", answers=rng.integers(0, 2, 12), users=np.arange(12))
    trial = Trial(
        questions="q",
        rows=np.arange(12),
        options=np.array([], dtype=np.int64),
        scores=rng.random((2, 12, 1)),
        keys={},
        metrics=("fits_ap",),
    )
    with pytest.raises(FedprintError, match="2 tables"):
        judge(trial, truth, Setting(seed=0))
