import numpy as np
import pytest

from fedprint.evaluation.intervals import proportion_interval
from fedprint.evaluation.measure import ap_by_round, ap_by_user, measure_reidentification
from fedprint.evaluation.metrics import METRICS
from fedprint.types import FedprintError, Measurement


def by_metric(scores: np.ndarray, truth: np.ndarray, seed: int = 0) -> dict[str, Measurement]:
    return {m.metric: m for m in measure_reidentification(scores, truth, truth, seed)}


def planted(strength: float, users: int = 50, updates: int = 6) -> tuple[np.ndarray, np.ndarray]:
    truth = np.repeat(np.arange(users), updates)
    scores = np.random.default_rng(0).normal(size=(len(truth), users))
    scores[np.arange(len(truth)), truth] += strength
    return scores, truth


def test_all_metrics_come_with_interval_chance_and_counts() -> None:
    found = by_metric(*planted(1.0))
    assert list(found) == ["ap", "ap_over_chance", "ap_over_prevalence", "top1", "top5", "tpr_1", "tpr_01"]
    for metric, m in found.items():
        assert m.unit == METRICS[metric].unit and m.lo < m.value < m.hi
        assert (m.n_questions, m.n_users) == (300, 50) and m.chance is not None


def test_ratios_are_the_scaled_ap() -> None:
    found = by_metric(*planted(1.0))
    ap, over, prevalence = found["ap"], found["ap_over_chance"], found["ap_over_prevalence"]
    assert ap.chance is not None
    assert [over.value, over.lo, over.hi] == pytest.approx([x / ap.chance for x in (ap.value, ap.lo, ap.hi)])
    assert prevalence.value == pytest.approx(ap.value * 50)
    assert over.chance == 1 and prevalence.chance == pytest.approx(ap.chance * 50)


def test_a_strong_signal_is_found_and_no_signal_is_chance() -> None:
    assert by_metric(*planted(20.0))["top1"].value > 0.99
    for metric, m in by_metric(*planted(0.0)).items():
        assert m.chance is not None and m.lo <= m.chance <= m.hi, metric


def test_one_question_per_user_gives_the_exact_proportion_interval() -> None:
    scores, truth = planted(2.0, users=40, updates=1)
    top1 = by_metric(scores, truth)["top1"]
    exact = proportion_interval(round(top1.value * 40), 40)
    assert (top1.lo, top1.hi) == pytest.approx((exact.lo, exact.hi))


def test_open_world_clusters_are_users_not_options() -> None:
    scores, truth = planted(1.0, users=10, updates=6)
    users = np.where(truth == 9, 100 + np.arange(60), truth)
    found = measure_reidentification(scores, truth, users, 0)
    assert {m.n_users for m in found} == {15}


def test_an_ap_stands_beside_what_exchanged_users_would_score() -> None:
    found, blind = (measure_reidentification(*planted(x), planted(x)[1], 0, permutations=999) for x in (1.0, 0.0))
    assert [m.metric for m in found if m.p_chance is not None] == ["ap"]
    assert found[0].p_chance == 0.001 and (blind[0].p_chance or 0) > 0.05
    assert {m.p_chance for m in by_metric(*planted(1.0)).values()} == {None}, "nothing asked for it"


def test_clumped_updates_are_no_link_though_they_exceed_the_formula() -> None:
    """Updates of one device resemble one another: their AP lies above chance, and no higher than without a link."""
    truth = np.repeat(np.arange(100), 10)

    def unlinked(seed: int) -> Measurement:
        rng = np.random.default_rng(seed)
        scores = np.repeat(rng.normal(size=(100, 100)), 10, axis=0) + 0.01 * rng.normal(size=(1000, 100))
        return measure_reidentification(scores, truth, truth, 0, permutations=199)[0]

    found = [unlinked(seed) for seed in range(8)]
    assert np.mean([ap.value for ap in found]) > 1.3 * (found[0].chance or 1)
    assert min(ap.p_chance or 0 for ap in found) > 0.05 / 8


def test_the_seed_decides_the_interval_and_nothing_else() -> None:
    scores, truth = planted(1.0)
    assert by_metric(scores, truth, 1) == by_metric(scores, truth, 1)
    assert by_metric(scores, truth, 1)["ap"].value == by_metric(scores, truth, 2)["ap"].value
    assert by_metric(scores, truth, 1)["ap"].lo != by_metric(scores, truth, 2)["ap"].lo


def test_ap_by_user_averages_to_the_ap() -> None:
    scores, truth = planted(1.0)
    rows = ap_by_user(scores, truth, range(1000, 1050))
    assert np.mean([r.ap for r in rows]) == pytest.approx(by_metric(scores, truth)["ap"].value)
    assert [r.user_id for r in rows] == list(range(1000, 1050)) and {r.n_updates for r in rows} == {6}
    with pytest.raises(FedprintError, match="options"):
        ap_by_user(scores, truth, range(3))


def test_ap_by_round_ranks_the_questions_of_a_bin_only() -> None:
    scores, truth = planted(1.0)
    rounds = np.tile([0, 1, 4, 5, 8, 9], 50)
    bins = ap_by_round(scores, truth, rounds, 5, 0)
    assert [(b.first, b.last) for b in bins] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert bins[1].ap is None and bins[3].ap is None
    inside = rounds < 2
    expected = by_metric(scores[inside], truth[inside])["ap"]
    assert bins[0].ap == expected and expected.n_questions == 100


def test_one_bin_is_the_whole_training_and_rounds_must_match() -> None:
    scores, truth = planted(1.0)
    assert ap_by_round(scores, truth, np.tile(np.arange(6), 50), 1, 0)[0].ap == by_metric(scores, truth)["ap"]
    assert len(ap_by_round(scores, truth, np.tile([3, 3, 3, 4, 4, 4], 50), 10, 0)) == 2
    with pytest.raises(FedprintError, match="rounds"):
        ap_by_round(scores, truth, [1, 2], 2, 0)
