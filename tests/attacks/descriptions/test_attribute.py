from __future__ import annotations

from dataclasses import replace

import attack_cases as cases
import numpy as np
import pytest
from scipy.special import logsumexp

from fedprint.attacks.descriptions.attribute import (
    Lesson,
    Task,
    class_posterior,
    deal_folds,
    fit_heads,
    held_rows,
    held_users,
    ridge_attribute,
)
from fedprint.attacks.features import matrix
from fedprint.attacks.learner import MlpSettings
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.rng import torch_rng
from fedprint.types import FedprintError

USERS, PER_USER, CLASSES = 24, 6, 3
KIND = np.arange(USERS) % CLASSES
"""The class of each user."""


def _kinds(signal: float, personal: float = 1.0, seed: int = 0) -> MemoryUpdates:
    """Return updates (users * per user, d): each class and each user has a direction of its own."""
    rng = np.random.default_rng(seed)
    d = sum(cases.SIZES.values())
    kind, person = rng.normal(size=(CLASSES, d)), rng.normal(size=(USERS, d))
    means = signal * kind[KIND] + personal * person
    values = np.repeat(means, PER_USER, axis=0) + rng.normal(size=(USERS * PER_USER, d))
    return MemoryUpdates(sizes=cases.SIZES, values=(1e-3 * values).astype(np.float32))


def _new_users(updates: MemoryUpdates) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Learn from the first half of the users, ask for the others: problem, users (p,), true classes (q,)."""
    sender = np.repeat(np.arange(USERS), PER_USER)
    fit, ask = np.flatnonzero(sender < USERS // 2), np.flatnonzero(sender >= USERS // 2)
    problem = Problem(updates=updates, fit=fit, labels=KIND[sender[fit]], ask=ask, options=CLASSES)
    return problem, sender[fit], KIND[sender[ask]]


def _heads(problem: Problem, users: np.ndarray, *names: str, epochs: int = 30) -> dict[str, np.ndarray]:
    x = 8 * matrix(problem.updates, None)
    tasks = {
        "user": Task(labels=users, classes=USERS),
        "attribute": Task(labels=problem.labels, classes=CLASSES),
    }
    lesson = Lesson(
        x=x[problem.fit],
        tasks={name: tasks[name] for name in names},
        held=held_rows(len(problem.fit), torch_rng(0, "held")),
        stop_on=names,
    )
    return fit_heads(lesson, x[problem.ask], MlpSettings(epochs=epochs, batch_size=8), torch_rng(0, "net"))


@pytest.mark.parametrize("heads", [("attribute",), ("user", "attribute")], ids=["stl", "mtl"])
def test_networks_find_a_planted_attribute_in_new_users(heads: tuple[str, ...]) -> None:
    problem, users, truth = _new_users(_kinds(2.0))
    found = _heads(problem, users, *heads)
    assert set(found) == set(heads)
    assert (found["attribute"].argmax(1) == truth).mean() > 0.9
    np.testing.assert_allclose(logsumexp(found["attribute"], axis=1), 0, atol=1e-5)


def test_the_second_head_names_users() -> None:
    updates = _kinds(0.5, personal=2.0)
    sender = np.repeat(np.arange(USERS), PER_USER)
    odd = np.arange(len(sender)) % 2 == 1
    fit, ask = np.flatnonzero(~odd), np.flatnonzero(odd)
    problem = Problem(updates=updates, fit=fit, labels=KIND[sender[fit]], ask=ask, options=CLASSES)
    found = _heads(problem, sender[fit], "user", "attribute", epochs=50)
    assert (found["user"].argmax(1) == sender[ask]).mean() > 0.8


def test_equal_seeds_give_equal_networks_whatever_torch_drew_before() -> None:
    import torch

    problem, users, _ = _new_users(_kinds(1.0))
    first = _heads(problem, users, "user", "attribute", epochs=3)
    torch.manual_seed(5)
    second = _heads(problem, users, "user", "attribute", epochs=3)
    np.testing.assert_array_equal(first["attribute"], second["attribute"])


def test_ridge_finds_a_planted_attribute_in_new_users_and_none_where_there_is_none() -> None:
    problem, users, truth = _new_users(_kinds(2.0))
    found = ridge_attribute(problem, users, Workspace(), torch_rng(0))
    assert (found.argmax(1) == truth).mean() > 0.9
    np.testing.assert_allclose(logsumexp(found, axis=1), 0, atol=1e-9)
    hits = []
    for seed in range(8):
        problem, users, truth = _new_users(_kinds(0.0, personal=2.0, seed=seed))
        hits.append((ridge_attribute(problem, users, Workspace(), torch_rng(0)).argmax(1) == truth).mean())
    assert 0.15 < np.mean(hits) < 0.5


def test_ridge_is_unsure_of_new_users_where_users_alone_differ() -> None:
    """Validated on users it has learned from, it would be as sure as it is of whom it knows."""
    problem, users, truth = _new_users(_kinds(0.0, personal=3.0))
    found = ridge_attribute(problem, users, Workspace(), torch_rng(0))
    assert -found[np.arange(len(truth)), truth].mean() < 1.5 * np.log(CLASSES)


def test_one_user_is_too_few() -> None:
    problem, users, _ = _new_users(_kinds(1.0))
    one = replace(problem, fit=problem.fit[users == 0], labels=problem.labels[users == 0])
    with pytest.raises(FedprintError, match="two users"):
        ridge_attribute(one, users[users == 0], Workspace(), torch_rng(0))
    lesson = Lesson(x=np.ones((2, 3), np.float32), tasks={}, held=np.array([True, True]), stop_on=())
    with pytest.raises(FedprintError, match="record more"):
        fit_heads(lesson, np.ones((1, 3), np.float32), MlpSettings(), torch_rng(0))


def test_the_posterior_of_a_class_is_that_of_its_users() -> None:
    identity = np.log(np.array([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]]))
    found = np.exp(class_posterior(identity, np.array([2, 0, 2]), 3))
    np.testing.assert_allclose(found, [[0.2, 0, 0.8], [0.6, 0, 0.4]], atol=1e-9)


def test_folds_spread_every_class() -> None:
    classes = np.array([0] * 10 + [1] * 5 + [2] * 3)
    dealt = deal_folds(classes, 5, torch_rng(0))
    assert set(np.bincount(dealt)) <= {3, 4}
    assert (np.bincount(dealt[classes == 0]) == 2).all()
    assert len(set(dealt[classes == 2].tolist())) == 3
    assert not np.array_equal(dealt, deal_folds(classes, 5, torch_rng(1)))


def test_held_rows_and_held_users() -> None:
    assert held_rows(40, torch_rng(0)).sum() == 4
    users = np.repeat(np.arange(10), 3)
    held = held_users(users, torch_rng(0))
    assert held.sum() == 6
    assert all(held[users == user].all() or not held[users == user].any() for user in range(10))
