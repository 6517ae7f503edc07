"""Tracing accuracy by participants, and membership at a low false positive rate, on made-up answers."""

from __future__ import annotations

import numpy as np
import pytest

from fedprint.evaluation.inversion.membership import membership_outcome
from fedprint.evaluation.inversion.tracing import participants_of, tracing_by_participants
from fedprint.types import FedprintError


def test_perfect_and_random_tracing() -> None:
    truth = np.arange(200)
    for outcome in tracing_by_participants(truth, truth, 200, (2, 10, 200), seed=0):
        assert outcome.accuracy.value == 1 and outcome.accuracy.lo > 0.97
        assert outcome.chance == pytest.approx(1 / outcome.participants)
    guess = np.random.default_rng(0).permutation(200)
    few, many = tracing_by_participants(guess, truth, 200, (2, 50), seed=0)
    assert few.accuracy.lo < 0.5 < few.accuracy.hi and many.accuracy.lo < 0.02 < many.accuracy.hi
    assert (few.participants, many.participants) == (2, 50)


def test_a_wrong_update_of_the_right_participant_counts() -> None:
    owners = participants_of(10, 3, seed=1)
    assert sorted(np.bincount(owners)) == [3, 3, 4]
    mates = np.array([np.flatnonzero((owners == owners[i]) & (np.arange(10) != i))[0] for i in range(10)])
    (outcome,) = tracing_by_participants(mates, np.arange(10), 10, (3,), seed=1)
    assert outcome.accuracy.value == 1
    (index,) = tracing_by_participants(mates, np.arange(10), 10, (10,), seed=1)
    assert index.accuracy.value == 0


def test_queries_of_one_update_are_drawn_together() -> None:
    truth = np.repeat(np.arange(20), 8)
    found = np.where(truth % 2, truth, (truth + 1) % 20)
    (together,) = tracing_by_participants(found, truth, 20, (20,), seed=0)
    (apart,) = tracing_by_participants(found[::8], truth[::8], 20, (20,), seed=0)
    assert together.accuracy.value == apart.accuracy.value == 0.5
    width = together.accuracy.hi - together.accuracy.lo
    assert width > 0.3, "160 queries on 20 updates say no more than 20"


def test_more_participants_than_updates_are_refused() -> None:
    with pytest.raises(FedprintError, match="tracing: 5 participants for 4 updates; choose 1 to 4"):
        tracing_by_participants([0], [0], 4, (5,), seed=0)


def test_the_rate_at_few_false_positives_is_that_above_the_last_allowed_one() -> None:
    others, members = np.linspace(0, 1, 2000), np.concatenate([np.full(30, 2.0), np.full(70, 0.5)])
    scores = np.concatenate([others, members])
    truth = np.arange(len(scores)) >= 2000
    found = membership_outcome(scores, truth, np.arange(len(scores)), np.random.default_rng(0))
    assert found.tpr.value == 0.3 and found.tpr.lo == pytest.approx(0.212, abs=2e-3)
    assert found.resolved and not found.note and (found.members, found.others) == (100, 2000)
    assert found.auc.value == pytest.approx(0.65, abs=0.01) and found.auc.lo < 0.65 < found.auc.hi
    tied = membership_outcome(np.ones(2100), truth, np.arange(2100), np.random.default_rng(0))
    assert tied.tpr.value == 0 and tied.auc.value == 0.5


def test_too_few_others_are_named() -> None:
    scores, truth = np.arange(60.0), np.arange(60) >= 50
    found = membership_outcome(scores, truth, np.arange(60), np.random.default_rng(0))
    assert not found.resolved and found.tpr.value == 1 and 0.05 < found.fpr_bound < 0.08
    assert found.note == "50 non-members are too few for a false positive rate of 0.001 (at least 1000)"
    with pytest.raises(FedprintError, match="membership: 3 of 3 are members; bring both kinds"):
        membership_outcome([1, 2, 3], [1, 1, 1], [0, 1, 2], np.random.default_rng(0))


def test_members_of_one_update_are_drawn_together() -> None:
    """Eight members each of 20 updates, half of which leak: no more is known than from one member each."""
    update = np.repeat(np.arange(20), 8)
    members = np.where(update % 2, 2.0, 0.5)
    scores, truth = np.concatenate([members, np.linspace(0, 1, 2000)]), np.arange(2160) < 160
    found = membership_outcome(scores, truth, np.concatenate([update, np.arange(2000) % 20]), np.random.default_rng(0))
    assert found.tpr.value == 0.5 and found.tpr.hi - found.tpr.lo > 0.3
    assert found.tpr_chance == pytest.approx(3 / 2001), "two false positives allowed, the third is the threshold"


def test_random_scores_cover_one_half() -> None:
    rng, inside = np.random.default_rng(1), 0
    for _ in range(40):
        scores, truth = rng.normal(size=120), rng.random(120) < 0.4
        found = membership_outcome(scores, truth, np.arange(120), rng)
        inside += found.auc.lo <= 0.5 <= found.auc.hi
    assert inside >= 33
