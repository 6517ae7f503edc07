"""PPC and CAP against numbers computed by hand, and against what the published tables allow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedprint.evaluation.inversion.capability import (
    Setting,
    accuracy_of_runs,
    calibration,
    cap,
    cap_difference,
    performance,
    region,
)
from fedprint.reports.numbers.reference import reference_table
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, FedprintError

SPN_STRENGTHS = 8


def right(share: float, of: int = 10_000) -> Doubles:
    """Test hits with this accuracy."""
    return (np.arange(of) < round(share * of)).astype(float)


def test_cap_is_the_mean_over_strengths_of_accuracy_times_distance() -> None:
    settings = [
        Setting(hits=right(0.9), distances=np.array([0.1, 0.3, 0.2, 0.2])),
        Setting(hits=right(0.5), distances=np.array([1.0, 1.2, 0.8, 1.0])),
    ]
    np.testing.assert_allclose(performance(settings), [0.295, 0.435, 0.29, 0.34])
    found = cap(settings, np.arange(4), numpy_rng(0), top=2.0)
    assert found.value == pytest.approx((0.9 * 0.2 + 0.5 * 1.0) / 2)
    assert found.lo < found.value < found.hi


def test_an_unsure_accuracy_widens_the_interval_and_moves_nothing() -> None:
    distances = np.array([0.5, 0.6, 0.7, 0.8])
    sure = cap([Setting(hits=right(0.6), distances=distances)], np.arange(4), numpy_rng(0), top=2.0)
    rough = Setting(hits=right(0.6, 10), distances=distances)
    unsure = cap([rough], np.arange(4), numpy_rng(0), top=2.0)
    assert unsure.value == pytest.approx(sure.value)
    assert unsure.lo < sure.lo and unsure.hi > sure.hi


def test_a_difference_is_paired_image_by_image() -> None:
    hard = np.linspace(0.1, 1.5, 12)  # images differ much more than mechanisms do
    gain = 0.2 + 0.02 * np.cos(np.arange(12))
    one = [Setting(hits=right(0.5), distances=hard + gain)]
    other = [Setting(hits=right(0.5), distances=hard)]
    paired = cap_difference(one, other, np.arange(12), numpy_rng(0), top=3.0)
    alone = cap(one, np.arange(12), numpy_rng(0), top=3.0)
    assert paired.value == pytest.approx(0.5 * gain.mean())
    assert paired.lo > 0.09 and alone.lo < 0.4, "the paired interval excludes 0, though single ones are wide"


def test_a_difference_is_paired_test_image_by_test_image() -> None:
    """An accuracy measured on few test images leaves open who leads; models that err alike do not."""
    victims, near = np.arange(12), np.full(12, 0.5)
    far = 0.6 + 0.01 * (-1.0) ** np.arange(12)
    hits = (np.arange(40) % 2).astype(float)
    alike, unlike = hits, np.roll(hits, 1)
    ends = {}
    for name, theirs in (("alike", alike), ("unlike", unlike)):
        one, other = [Setting(hits=hits, distances=far)], [Setting(hits=theirs, distances=near)]
        found = cap_difference(one, other, victims, numpy_rng(0), top=1.0)
        assert found.value == pytest.approx(0.5 * 0.1)
        ends[name] = found
    assert ends["alike"].lo > 0 > ends["unlike"].lo
    half = ends["unlike"].hi - 0.05
    assert half == pytest.approx(1.96 * 0.55 / math.sqrt(40), rel=0.4), "about the standard error of the hits"


def test_runs_that_end_apart_widen_the_interval_and_pairs_of_them_do_not() -> None:
    """Three runs of one training: their mean is the accuracy, and how far they lie apart is in its interval."""
    apart, alike = (np.stack([right(share, 1000) for share in shares]) for shares in ((0.3, 0.5, 0.7), (0.5, 0.5, 0.5)))
    wide, narrow, one = (accuracy_of_runs(hits) for hits in (apart, alike, right(0.5, 1000)))
    assert [wide.value, narrow.value, one.value] == pytest.approx([0.5, 0.5, 0.5])
    assert (narrow.lo, narrow.hi) == pytest.approx((one.lo, one.hi))
    assert wide.hi - wide.value == pytest.approx(4.303 * 0.2 / math.sqrt(3), rel=0.01), "Student's, two degrees"
    victims, far, near = np.arange(12), 0.6 + 0.01 * (-1.0) ** np.arange(12), np.full(12, 0.5)
    ends = {}
    for name, theirs in (("paired", apart), ("crossed", apart[::-1])):
        mine, other = [Setting(hits=apart, distances=far)], [Setting(hits=theirs, distances=near)]
        ends[name] = cap_difference(mine, other, victims, numpy_rng(0), top=1.0)
    assert ends["paired"].value == pytest.approx(0.05) == ends["crossed"].value
    assert ends["crossed"].hi - ends["crossed"].lo > 3 * (ends["paired"].hi - ends["paired"].lo)


def test_models_on_other_test_images_are_not_compared() -> None:
    one, other = ([Setting(hits=right(0.5, of), distances=np.ones(3))] for of in (10, 20))
    with pytest.raises(FedprintError, match="share test images"):
        cap_difference(one, other, np.arange(3), numpy_rng(0), top=1.0)


def test_settings_on_different_images_are_refused() -> None:
    settings = [Setting(hits=right(1), distances=np.ones(n)) for n in (3, 4)]
    with pytest.raises(FedprintError, match="the same images"):
        performance(settings)


def test_the_curves_scale_and_the_regions() -> None:
    assert calibration(1.0) == pytest.approx(math.log10(2)) and calibration(math.inf) == math.inf
    assert [region(0.5, 0.05), region(0.5, 1.0)] == ["green", "green"], "a label of the ratio, whatever is found"
    assert [region(2.0, 0.05), region(2.0, 1.0), region(math.inf, 0.19)] == ["red", "white", "red"]


def published_accuracies(dataset: str, mechanism: str) -> list[float]:
    name = mechanism if mechanism in ("dp", "spn") else f"{mechanism}+dp"
    return [float(row[dataset]) for row in reference_table("spn_accuracy_dlnet") if row["mechanism"] == name]


@pytest.mark.parametrize("dataset", ["mnist", "cifar10", "cifar100", "svhn"])
@pytest.mark.parametrize("mechanism", ["dp", "ppdl_0.05", "ppdl_0.3", "spn"])
def test_published_scores_fit_the_published_accuracies(dataset: str, mechanism: str) -> None:
    """Membership and tracing distances are at most 1, so that CAP is at most the mean accuracy over the grid."""
    accuracies = published_accuracies(dataset, mechanism)
    assert len(accuracies) == (SPN_STRENGTHS if mechanism == "spn" else 5)
    settings = [Setting(hits=right(value), distances=np.ones(2)) for value in accuracies]
    most = cap(settings, np.arange(2), numpy_rng(0), top=1.0).value
    assert most == pytest.approx(np.mean(accuracies))
    for row in reference_table("spn_cap"):
        if row["dataset"] == dataset and row["attack"] != "reconstruction":
            assert float(row[mechanism]) <= most + 0.005, f"{row['attack']}, batch {row['batch_size']}"
