"""The contract of attacks: :class:`fedprint.attacks.reidentification.workspace.Attack`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.ranking import average_precision
from fedprint.rng import numpy_rng, torch_rng
from fedprint.store.sent import Sent
from fedprint.testing.component import ComponentContract
from fedprint.types import Ints, Scores

USERS, PER_DEVICE, ROUNDS = 10, 6, 40
SIZES = {"body.weight": 40, "body.bias": 8, "head.weight": 32}


def planted(seed: int) -> Problem:
    """Return updates of people whose direction, length, count and rounds are their own: an easy problem.

    Each has two devices with :data:`PER_DEVICE` updates; those of the first devices are known.
    """
    rng, half = numpy_rng(seed, "planted"), USERS * PER_DEVICE
    who = np.tile(np.repeat(np.arange(USERS), PER_DEVICE), 2)
    own = rng.normal(size=(USERS, sum(SIZES.values())))
    length = np.exp(np.linspace(-1, 1, USERS))[who][:, None]
    values = length * (own[who] + 0.5 * rng.normal(size=(2 * half, own.shape[1])))
    rounds = np.tile(np.arange(PER_DEVICE), 2 * USERS)
    history = (rng.random((USERS, ROUNDS)) < 0.5)[who]
    sent = Sent(examples=(10 * 2**who).astype(np.int64), rounds=rounds, history=history)
    return Problem(
        updates=MemoryUpdates(sizes=SIZES, values=(1e-3 * values).astype(np.float32), sent=sent),
        fit=np.arange(half),
        labels=who[:half],
        ask=np.arange(half, 2 * half),
        options=USERS,
    )


def answers(attack: Any, problem: Problem) -> Scores:
    """Return an attack's scores with settings chosen on other people's updates."""
    other, work = planted(1), Workspace()
    settings = attack.settings([Validation(problem=other, answers=other.labels)], work)
    scores: Scores = attack.scores(problem, settings, work, torch_rng(0, "attack"))
    return scores


@cache
def usual(attack: Any) -> Scores:
    """Return the answers to the same planted problem, computed once for all tests of an attack."""
    return answers(attack, planted(0))


class AttackContract(ComponentContract):
    """An attack scores every user for every asked update, from what it is given alone.

    ``learns`` is whether it finds the senders of :func:`planted` updates; only a baseline has no need to.
    """

    learns: bool = True

    def test_it_says_what_it_is(self) -> None:
        """The shuffled-label check and the choice of the attacker read these."""
        assert isinstance(self.component.symmetric, bool) and isinstance(self.component.selectable, bool)

    def test_it_scores_every_user_for_every_update(self) -> None:
        """Scores are finite numbers (q, m)."""
        problem = planted(0)
        scores = usual(self.component)
        assert scores.shape == (len(problem.ask), problem.options)
        assert np.isfinite(scores).all()

    def test_equal_input_gives_equal_scores(self) -> None:
        """All that is random comes from the generator that it is given."""
        assert np.array_equal(usual(self.component), answers(self.component, planted(0)))

    def test_it_changes_nothing_that_it_is_given(self) -> None:
        """Other attacks read the same arrays."""
        problem, same = planted(0), planted(0)
        answers(self.component, problem)
        assert np.array_equal(problem.updates.values, same.updates.values)  # type: ignore[attr-defined]
        assert np.array_equal(problem.labels, same.labels) and np.array_equal(problem.ask, same.ask)

    def test_it_finds_planted_users(self) -> None:
        """An easy problem is solved; a baseline need not."""
        if self.learns:
            assert mean_ap(usual(self.component), planted(0).labels) > 0.6

    def test_labels_of_others_teach_nothing(self) -> None:
        """Where the known labels are those of other users, nobody is found: no answer comes from elsewhere."""
        problem = planted(0)
        wrong = replace(problem, labels=(problem.labels + USERS // 2) % USERS)
        assert mean_ap(answers(self.component, wrong), problem.labels) < 0.35

    def test_exchanged_labels_exchange_the_columns_of_a_symmetric_attack(self) -> None:
        """The shuffled-label check computes no new scores for such an attack."""
        if not self.component.symmetric:
            return
        problem, order = planted(0), np.roll(np.arange(USERS), 3)
        moved = np.empty((len(problem.ask), USERS))
        moved[:, order] = usual(self.component)
        exchanged = answers(self.component, replace(problem, labels=order[problem.labels]))
        np.testing.assert_allclose(exchanged, moved, rtol=1e-4, atol=1e-5)

    def test_a_user_without_a_known_update_is_an_option_too(self) -> None:
        """The server may have recorded no update of a prior device."""
        problem = planted(0)
        kept = problem.labels != 0
        scores = answers(self.component, replace(problem, fit=problem.fit[kept], labels=problem.labels[kept]))
        assert scores.shape == (len(problem.ask), problem.options) and np.isfinite(scores).all()


def mean_ap(scores: Scores, truth: Ints) -> float:
    """Return the mean AP over users."""
    return float(average_precision(scores, truth).mean())
