from __future__ import annotations

from dataclasses import replace

import attack_cases as cases
import numpy as np
import pytest
import torch

from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.reidentify import scores_of, tune
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.side_channels import Count, History, Norm, UpdateAndSideChannels
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.attacks.updates import Joined, MemoryUpdates, RowsOf
from fedprint.ranking import average_precision
from fedprint.store.sent import Sent
from fedprint.types import FedprintError

ROUNDS = 40
SIDES: tuple[Attack, ...] = (Count(), Norm(), History())


def telling(channel: str, signal: float = 0.0, seed: int = 0) -> Problem:
    """Return updates of which one side channel tells the user, and the numbers as much as ``signal``."""
    rng, rows = np.random.default_rng(seed), 2 * cases.USERS * cases.PER_DEVICE
    users = np.tile(np.repeat(np.arange(cases.USERS), cases.PER_DEVICE), 2)
    updates = cases.planted(signal, seed)
    examples = rng.integers(20, 200, cases.USERS)[users] if channel == "count" else rng.integers(20, 200, rows)
    times = rng.random((cases.USERS, ROUNDS))[users] if channel == "participation" else rng.random((rows, ROUNDS))
    rounds = np.tile(np.arange(cases.PER_DEVICE), 2 * cases.USERS)
    values = updates.values / (1 + rounds)[:, None]  # updates of later rounds are smaller
    if channel == "norm":
        values *= (1 + 0.3 * users)[:, None]
    sent = Sent(examples=examples, rounds=rounds, history=times < 0.5)
    return cases.problem(MemoryUpdates(sizes=cases.SIZES, values=values.astype(np.float32), sent=sent))


def ap_of(attack: Attack, problem: Problem) -> float:
    work, rng = Workspace(), torch.Generator().manual_seed(0)
    scores = scores_of(attack, problem, {}, work, rng)
    return float(average_precision(scores, cases.truth(len(problem.ask))).mean())


@pytest.mark.parametrize("channel", [attack.name for attack in SIDES])
def test_each_attack_reads_its_channel_and_no_other(channel: str) -> None:
    chance, problem = 1 / cases.USERS, telling(channel)
    for attack in SIDES:
        if attack.name == channel:
            assert ap_of(attack, problem) > 0.7
        else:
            assert ap_of(attack, problem) < 4 * chance, attack.name


def test_a_norm_is_compared_with_others_of_its_round() -> None:
    problem = telling("norm")
    sent = replace(problem.updates.sent, rounds=np.zeros(len(problem.updates.sent.rounds), np.int64))
    blind = replace(problem, updates=replace(problem.updates, sent=sent))  # type: ignore[type-var]
    assert ap_of(Norm(), problem) > ap_of(Norm(), blind) + 0.2


def test_ridge_and_side_channels_together_are_better_than_either() -> None:
    problem, work, rng = telling("count", signal=0.35), Workspace(), torch.Generator().manual_seed(0)
    several = replace(problem.updates.sent, examples=50 * 2 ** (np.tile(problem.labels, 2) % 4))
    problem = replace(problem, updates=replace(problem.updates, sent=several))  # type: ignore[type-var]
    both, alone = UpdateAndSideChannels(), Ridge()
    folds = [replace(fold, problem=replace(fold.problem, updates=_with_sent(fold.problem))) for fold in
             cases.validation(0.35)]  # fmt: skip
    truth = cases.truth(len(problem.ask))
    aps = {
        attack.name: float(
            average_precision(attack.scores(problem, tune(attack, folds, work, rng).settings, work, rng), truth).mean()
        )
        for attack in (both, alone, Count())
    }
    assert aps["ridge+sides"] > max(aps["ridge"], aps["count"]), aps


def other_sizes(problem: Problem, seed: int) -> Problem:
    """Return the problem with devices of one size each: two devices of a user have nothing to do with each other."""
    assert isinstance(problem.updates, MemoryUpdates)
    sizes = np.random.default_rng(seed).uniform(0.5, 2, 2 * cases.USERS)
    values = problem.updates.values * np.repeat(sizes, cases.PER_DEVICE)[:, None].astype(np.float32)
    sent = replace(telling("count").updates.sent, examples=np.full(len(values), 50))
    return replace(problem, updates=replace(problem.updates, values=values, sent=sent))


def test_norms_that_differ_between_devices_of_a_user_do_not_mislead() -> None:
    work, rng = Workspace(), torch.Generator().manual_seed(0)
    problem = other_sizes(cases.problem(cases.planted(0.35)), 0)
    folds = [replace(fold, problem=other_sizes(fold.problem, 1)) for fold in cases.validation(0.35)]
    both, alone = (
        average_precision(
            attack.scores(problem, tune(attack, folds, work, rng).settings, work, rng), cases.truth(len(problem.ask))
        ).mean()
        for attack in (UpdateAndSideChannels(), Ridge())
    )
    assert both > alone - 0.03


def test_what_is_known_of_senders_follows_rows_and_joins() -> None:
    updates = telling("count").updates
    rows = np.array([5, 2, 40])
    joined = Joined(first=RowsOf(updates=updates, rows=rows), second=updates)
    assert joined.sent.examples[:3].tolist() == updates.sent.examples[rows].tolist()
    assert np.array_equal(joined.sent.history[3:], updates.sent.history)
    assert not Joined(first=updates, second=cases.planted(0.0)).sent.known


@pytest.mark.parametrize("attack", SIDES)
def test_updates_of_unknown_senders_are_refused(attack: Attack) -> None:
    with pytest.raises(FedprintError, match="nothing is known of these updates"):
        ap_of(attack, cases.problem(cases.planted(0.0)))


def test_users_without_known_rows_come_last() -> None:
    problem = telling("count")
    few = replace(problem, fit=problem.fit[cases.PER_DEVICE :], labels=problem.labels[cases.PER_DEVICE :])
    scores = Count().scores(few, {}, Workspace(), torch.Generator())
    assert (scores[:, 0] < scores[:, 1:].min()).all()


def _with_sent(problem: Problem) -> MemoryUpdates:
    assert isinstance(problem.updates, MemoryUpdates)
    return replace(problem.updates, sent=telling("count", seed=9).updates.sent)
