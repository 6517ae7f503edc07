"""What is asked of a recording, and on what an attack is tuned: everything that the adversary knows before it attacks.

Updates whose user the auditor knows are the prior. The others are asked. Without a truth the known updates themselves
are cut in time. Letters: n updates, q asked ones, m users (columns).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedprint.attacks.features import Updates
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.updates import RowsOf
from fedprint.errors import FedprintError
from fedprint.rng import numpy_rng
from fedprint.types import Ints

Basis = Literal["devices", "rounds", "nothing"]
"""What settings are validated on: other devices of known users, other updates of the same devices, or nothing."""

MOST_SCORES = 1 << 22
"""Most entries of a table of scores (q, m): of larger ones some devices, drawn at random, are asked about."""

TUNED_USERS, TUNED_UPDATES = 128, 4
"""On how many known users settings are chosen at most, and on how many updates of each side: 512 against 512 in all.

The cost of a trial grows with the cube of that number.
"""


class RecordedUpdates(Updates, Protocol):
    """The part of :class:`fedprint.store.recorded.recording.Recording` that an attack reads.

    ``index`` has a line per update: ``round``, ``device`` (None where rounds cannot be linked), ``num_examples`` (0
    where unknown), ``user`` (None unless the auditor knows it).
    """

    @property
    def index(self) -> pd.DataFrame:
        """One line per update."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The ``problem``, its ``folds`` for validation (none where ``basis`` is nothing), and who asks about what.

    ``options`` (m,) are the names of the users; ``rows`` (q,) the asked lines of the index, in the order of
    ``problem.ask``; ``senders`` (q,) their devices, one name per update where rounds cannot be linked. ``split`` says
    that known updates were cut in time. ``unasked`` counts updates that were left out because there are too many.
    """

    problem: Problem
    folds: tuple[Validation, ...]
    basis: Basis
    options: tuple[str, ...]
    rows: Ints
    senders: tuple[str, ...]
    rounds: Ints
    linkable: bool
    split: bool
    unasked: int


def scene_of(recording: RecordedUpdates, *, split: bool, seed: int) -> Scene:
    """Return what is asked: every update without a user, or with ``split`` each known user's later updates.

    Raises FedprintError where fewer than two users are known, or nothing is left to ask.
    """
    index = recording.index
    known = index["user"].notna().to_numpy()
    options = tuple(sorted(map(str, index["user"][known].unique())))
    if len(options) < 2:
        raise FedprintError(
            f"the index names {len(options)} users, and an attack needs two: fill the column `user` for devices whose "
            "user you know"
        )
    columns = pd.Categorical(index["user"], categories=options).codes.astype(np.int64)
    asked = _later(columns, index["round"].to_numpy(), known) if split else ~known
    if not asked.any():
        raise FedprintError(
            "no known user has two updates, so there are none to ask about: record more rounds, or give a `truth`"
            if split
            else "every line of the index has a `user`, so there is nothing to ask: leave out the truth, or clear "
            "`user`"
        )
    fit, ask = np.flatnonzero(known & ~asked), np.flatnonzero(asked)
    senders = _senders(index, ask)
    kept = _few(senders, MOST_SCORES // len(options), seed)
    problem = Problem(updates=recording, fit=fit, labels=columns[fit], ask=ask[kept], options=len(options))
    folds, basis = _folds(problem, index.iloc[fit])
    return Scene(
        problem=problem,
        folds=folds,
        basis=basis,
        options=options,
        rows=ask[kept],
        senders=tuple(senders[kept].tolist()),
        rounds=index["round"].to_numpy(dtype=np.int64)[ask[kept]],
        linkable=len(set(senders.tolist())) < len(senders) and bool(index["device"].iloc[ask].notna().all()),
        split=split,
        unasked=len(ask) - len(kept),
    )


def sender_groups(senders: Sequence[str]) -> list[Ints]:
    """Return the positions of each sender's updates, senders in order of their names."""
    _, codes = np.unique(np.asarray(senders), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    groups: list[Ints] = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return groups


def _later(columns: Ints, rounds: Ints, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which known updates (n,) are in the later half of their user's, in order of time."""
    lines = pd.DataFrame({"user": columns[known], "round": rounds[known]}).groupby("user")["round"]
    later = np.zeros(len(known), dtype=np.bool_)
    later[known] = lines.rank(method="first").to_numpy() > np.ceil(lines.transform("size").to_numpy() / 2)
    return later


def _senders(index: pd.DataFrame, rows: Ints) -> NDArray[np.str_]:
    devices = index["device"].iloc[rows]
    names = devices.where(devices.notna(), pd.Series([f"update {row}" for row in rows], index=devices.index))
    return names.to_numpy(dtype=str)


def _few(senders: NDArray[np.str_], most: int, seed: int) -> Ints:
    """Return the positions of all updates of as many senders, drawn at random, as have ``most`` updates together."""
    if len(senders) <= most:
        return np.arange(len(senders))
    groups = sender_groups(senders.tolist())
    order = numpy_rng(seed, "records", "asked").permutation(len(groups))
    ends = np.cumsum([len(groups[i]) for i in order])
    drawn = [groups[i] for i in order[: max(1, int((ends <= most).sum()))]]
    return np.sort(np.concatenate(drawn))


def _folds(problem: Problem, lines: pd.DataFrame) -> tuple[tuple[Validation, ...], Basis]:
    """Return two problems on known updates (``lines`` of the index): learn from one side of each user, ask the other.

    Sides are devices where half of the users or more have two known ones: another device of the same user, as in the
    attack (docs/adr/0002). Else they are every other round of the same device, which is easier than the attack.
    """
    rounds = _sides(problem.labels, lines["round"])
    if lines["device"].notna().all():
        devices = _sides(problem.labels, lines["device"])
        if 2 * len(_on_both(problem.labels, devices)) >= problem.options:
            return _two_problems(problem, devices), "devices"
    if len(_on_both(problem.labels, rounds)) >= 2:
        return _two_problems(problem, rounds), "rounds"
    return (), "nothing"


def _sides(labels: Ints, keys: pd.Series) -> Ints:
    """Return 0 or 1 for each update: its user's values of ``keys``, in order, are dealt in turn."""
    turns = keys.groupby(labels).transform(lambda own: pd.factorize(own, sort=True)[0])
    sides: Ints = turns.to_numpy(dtype=np.int64) % 2
    return sides


def _on_both(labels: Ints, sides: Ints) -> Ints:
    users: Ints = np.intersect1d(labels[sides == 0], labels[sides == 1])
    return users


def _two_problems(problem: Problem, sides: Ints) -> tuple[Validation, ...]:
    users = _on_both(problem.labels, sides)
    users = users[np.unique(np.linspace(0, len(users) - 1, TUNED_USERS).round().astype(np.int64))]
    lines = pd.DataFrame({"user": problem.labels, "side": sides})
    chosen = lines[lines["user"].isin(users)].groupby(["user", "side"], group_keys=False)["user"].apply(_spread)
    rows = np.sort(chosen.index.to_numpy())
    table = RowsOf(updates=problem.updates, rows=problem.fit[rows])
    labels, side = np.searchsorted(users, problem.labels[rows]), sides[rows]
    folds = []
    for learnt in (0, 1):
        fit, ask = np.flatnonzero(side == learnt), np.flatnonzero(side != learnt)
        part = Problem(updates=table, fit=fit, labels=labels[fit], ask=ask, options=len(users))
        folds.append(Validation(problem=part, answers=labels[ask]))
    return tuple(folds)


def _spread(lines: pd.Series) -> pd.Series:
    """Return at most :data:`TUNED_UPDATES` of the lines, evenly spread."""
    return lines.iloc[np.unique(np.linspace(0, len(lines) - 1, TUNED_UPDATES).round().astype(np.int64))]
