"""Does it matter when in training an update was sent (papers.md 2.5: train-epoch by test-epoch matrix)?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from fedprint.analyses.base import SELECTED, Analysis, Bench
from fedprint.analyses.trials import UPDATES, Key, Trial
from fedprint.attacks.adversary.shadow_devices import ShadowDevice, shadow_updates
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.reidentify import answer
from fedprint.attacks.reidentification.slices import SlicedWorkspace
from fedprint.attacks.updates import Joined
from fedprint.store.reader import UpdateStore
from fedprint.types import Ints

Spans = list[tuple[int, int]]


class Epochs(Analysis):
    """``epochs``: learn from the prior updates of some rounds, name the anonymous updates of others.

    Training is cut into ``bins`` equal bins of rounds. For a user without a recorded prior update in a bin a shadow
    device is trained at the bin's middle round, so that every bin has every user. A bin of anonymous updates asks about
    the users who sent updates in it. Keys: ``attack``, ``train_bin`` and ``test_bin`` (0 is the earliest),
    ``train_first``, ``train_last``, ``test_first``, ``test_last`` (rounds, inclusive).
    """

    name: Literal["epochs"] = "epochs"
    attack: str = SELECTED
    bins: int = Field(default=10, ge=1)

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per pair of bins with questions; one fit serves a row of the matrix."""
        bench.progress("completing bins")
        spans = round_bins(bench.view.store.rounds, self.bins)
        table = complete(bench, spans)
        work = SlicedWorkspace(table.problem, bench.view.device)
        attack, tuned = bench.attack(self.attack)
        asked = _bin_of(bench.view.store, bench.view.anonymous_rows, spans)
        for i, train in enumerate(spans):
            bench.progress(f"rounds {train[0]} to {train[1]}")
            problem = table.fitting(i)
            scores = answer(attack, problem, tuned, work, bench.rng(self.name, i)).scores
            for j in np.unique(asked).tolist():
                rows = np.flatnonzero(asked == j)
                keys: dict[str, Key] = {"attack": attack.name, "train_bin": i, "test_bin": j}
                keys |= {"train_first": train[0], "train_last": train[1]}
                keys |= {"test_first": spans[j][0], "test_last": spans[j][1]}
                yield Trial(questions=UPDATES, rows=rows, options=bench.options, scores=scores[rows], keys=keys)


@dataclass(frozen=True, kw_only=True)
class Complete:
    """The closed-world problem on recorded and added prior updates; ``bin`` (p,) is the bin of each."""

    problem: Problem
    bin: Ints

    def fitting(self, i: int) -> Problem:
        """Return the problem that learns from bin ``i`` alone."""
        inside = self.bin == i
        known = self.problem
        fit, labels = known.fit[inside], known.labels[inside]
        return Problem(updates=known.updates, fit=fit, labels=labels, ask=known.ask, options=known.options)


def complete(bench: Bench, spans: Spans) -> Complete:
    """Return the problem with an update of every user in every bin: missing ones are those of shadow devices."""
    recorded = bench.problem
    bins = _bin_of(bench.view.store, recorded.fit, spans)
    present = set(zip(bins.tolist(), recorded.labels.tolist(), strict=True))
    position = {user: i for i, user in enumerate(bench.everyone.options)}
    added = [
        (
            i,
            position[bench.view.labels[user.user_id]],
            ShadowDevice(user_id=user.user_id, examples=user.examples, round=t),
        )
        for i, t in enumerate(sum(span) // 2 for span in spans)
        for user in bench.view.prior_users
        if (i, position[bench.view.labels[user.user_id]]) not in present
    ]
    shadows = shadow_updates(bench.view, [device for _, _, device in added])
    n = len(added)
    labels = np.array([label for _, label, _ in added], dtype=np.int64)
    problem = Problem(
        updates=Joined(first=shadows, second=bench.view.store),
        fit=np.concatenate([np.arange(n), recorded.fit + n]),
        labels=np.concatenate([labels, recorded.labels]),
        ask=recorded.ask + n,
        options=recorded.options,
    )
    return Complete(problem=problem, bin=np.concatenate([np.array([i for i, _, _ in added], dtype=np.int64), bins]))


def round_bins(rounds: int, bins: int) -> Spans:
    """Cut ``rounds`` into at most ``bins`` consecutive spans (first, last), as equal as possible."""
    edges = np.linspace(0, rounds, min(bins, rounds) + 1).round().astype(int).tolist()
    return [(first, after - 1) for first, after in itertools.pairwise(edges)]


def _bin_of(store: UpdateStore, rows: Ints, spans: Spans) -> Ints:
    firsts = [first for first, _ in spans]
    bins: Ints = np.searchsorted(firsts, store.index["round"].to_numpy()[rows], side="right").astype(np.int64) - 1
    return bins
