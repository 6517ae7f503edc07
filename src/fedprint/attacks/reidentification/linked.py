"""Updates that one device sent: sets of them as questions, and their means in the place of single updates.

An adversary who links a device's updates averages the scores of single ones, or averages the updates and scores the
mean. Noise that is drawn anew in every round cancels in the mean before the attack takes signs; what is particular to a
round cancels too. Validation on prior data chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from fedprint.attacks.choices import KNOWN_MEANS
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.updates import OfTable
from fedprint.store.sent import Sent
from fedprint.types import Floats, Ints

LINKED = (1, 3, 10, 30, 100)
"""How many updates are linked: half of the devices or more must have sent so many."""


def linked_parts(senders: Sequence[str], rounds: Sequence[int], k: int) -> Ints:
    """Return parts (g, k) of the updates, each ``k`` of one sender in order of time; none where most sent fewer."""
    names, counts = np.unique(senders, return_counts=True)
    if 2 * int((counts >= k).sum()) < max(3, len(names)):
        return np.zeros((0, k), dtype=np.int64)
    order = np.lexsort((rounds, senders))
    of_sender = np.split(order, np.cumsum(counts)[:-1])
    parts: Ints = np.concatenate([rows[: len(rows) // k * k].reshape(-1, k) for rows in of_sender])
    return parts


@dataclass(frozen=True, kw_only=True)
class Means(OfTable):
    """A table of updates whose rows are means of the rows of another; ``groups`` are rows of that, none empty."""

    groups: tuple[Ints, ...]

    @cached_property
    def sent(self) -> Sent:
        """What is known of each row's sender: of its first update, with the mean count."""
        sent = self.updates.sent
        if not sent.known:
            return sent
        first = sent.rows(np.array([group[0] for group in self.groups]))
        counts = [round(float(sent.examples[group].mean())) for group in self.groups]
        return replace(first, examples=np.array(counts, dtype=np.int64))

    def blocks(
        self, layers: Sequence[str] | None = None, rows: Ints | None = None, *, columns: int = 1 << 14
    ) -> Iterator[Floats]:
        """Yield the chosen layers in column blocks (n, <= columns), of all rows or some."""
        chosen = self.groups if rows is None else [self.groups[row] for row in rows]
        counts = np.array([len(group) for group in chosen])
        members = np.concatenate(chosen)
        groups, sizes = (torch.from_numpy(part) for part in (np.repeat(np.arange(len(chosen)), counts), counts))
        # There may be several times as many members as groups: narrower blocks of them take no more memory.
        width = max(1, columns * len(chosen) // len(members))
        for block in self.updates.blocks(layers, members, columns=width):
            values = torch.from_numpy(np.asarray(block, np.float32))
            sums = torch.zeros(len(chosen), values.shape[1]).index_add_(0, groups, values)  # 8 times as fast as NumPy's
            yield (sums / sizes[:, None]).numpy()


def averaged(asked: Sequence[tuple[Problem, Sequence[Ints]]]) -> list[Problem]:
    """Return the problems that learn from means of each user's known updates and ask for the mean of each part.

    Beside each problem are its parts, positions among the asked updates. A user's known updates, dealt in order of
    time, make :data:`KNOWN_MEANS` means. Rows of background alone stay as they are. Problems that ask for the same rows
    of a table share a table of means, whose products are then computed once.
    """
    numbered: dict[tuple[int, bytes], _Numbered] = {}
    placed: list[tuple[Problem, _Numbered]] = []
    for problem, parts in asked:
        groups = numbered.setdefault((id(problem.updates), problem.ask.tobytes()), {})
        known, labels = _known_groups(problem)
        fit, ask = _positions(groups, known), _positions(groups, [problem.ask[part] for part in parts])
        nuisance = _positions(groups, problem.nuisance.reshape(-1, 1))
        placed.append((replace(problem, fit=fit, labels=labels, ask=ask, nuisance=nuisance), groups))
    tables: dict[int, Means] = {}
    made = []
    for problem, groups in placed:
        rows = tuple(group for _, group in groups.values())
        table = tables.setdefault(id(groups), Means(updates=problem.updates, groups=rows))
        made.append(replace(problem, updates=table))
    return made


def averaged_validations(validations: Sequence[Validation]) -> list[Validation]:
    """Return the validation problems on means: a user's asked updates are one question."""
    users = [np.unique(v.answers) for v in validations]
    parts = [[np.flatnonzero(v.answers == user) for user in of] for v, of in zip(validations, users, strict=True)]
    problems = averaged([(v.problem, of) for v, of in zip(validations, parts, strict=True)])
    return [replace(v, problem=p, answers=of) for v, p, of in zip(validations, problems, users, strict=True)]


_Numbered = dict[bytes, tuple[int, Ints]]
"""Groups of rows with their positions in a table of means; equal ones are there once."""


def _positions(groups: _Numbered, added: Iterable[Ints]) -> Ints:
    return np.array([groups.setdefault(rows.tobytes(), (len(groups), rows))[0] for rows in added], dtype=np.int64)


def _known_groups(problem: Problem) -> tuple[list[Ints], Ints]:
    rounds = problem.updates.sent.rounds[problem.fit] if problem.updates.sent.known else np.zeros(len(problem.fit))
    groups, labels = [], []
    for user in np.unique(problem.labels):
        own = np.flatnonzero(problem.labels == user)
        own = own[np.argsort(rounds[own], kind="stable")]
        for deal in range(min(KNOWN_MEANS, len(own))):
            groups.append(problem.fit[own[deal::KNOWN_MEANS]])
            labels.append(int(user))
    return groups, np.array(labels, dtype=np.int64)
