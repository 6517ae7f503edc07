"""The adversary's knowledge. There is no field for the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprint.defences.points import Defence
from fedprint.store.reader import UpdateStore
from fedprint.types import FedprintError, Ints, LocalTraining, Questions, User

if TYPE_CHECKING:
    from fedprint.models.base import FedModule


NOBODY = -1
"""The user id of nobody."""


@dataclass(frozen=True, kw_only=True)
class ServerRule:
    """How the server turns a round's updates into a step: public, so known to every adversary.

    Devices are weighted by their number of examples, or all are ``equal``. Their weighted sum is divided by the sum of
    the weights of the cohort, or by ``divisors`` (rounds,) that were fixed before. ``momentum`` times the last step is
    added. ``rates`` (rounds,) are the share of all ``devices`` that a round samples. ``noise`` (rounds,) is the
    standard deviation of the server's noise on a round's sum, per coordinate, and ``norms`` (rounds,) are the clipping
    norms that the server announced; each is empty where there is none. They are parameters of the defence: the naive
    adversary does not use them. ``in_turn``: each device of a round starts from the update that the device before it
    sent.
    """

    equal: bool
    devices: int
    rates: tuple[float, ...]
    noise: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    divisors: tuple[float, ...] | None = None
    momentum: float = 0.0
    in_turn: bool = False


@dataclass(frozen=True, kw_only=True)
class AttackerView:
    """An honest-but-curious server's knowledge (papers.md, sections 1 and 2.2).

    ``store`` holds the observations and the global models of every round. ``prior_users`` have the examples of the
    prior devices, which the adversary runs. ``defences`` are the defences' public parameters, or None for the naive
    adversary. ``model``, ``training`` (local training, round by round) and ``rule`` are the public task: every device
    has them. ``chronological``: the prior is the user's earlier data; ``by_album``: it is whole albums. ``labels`` maps
    a prior device's user id to the label in which the adversary believes: the identity, except in the shuffled-label
    check. ``seed`` is the adversary's own: nothing that a device or the server draws follows from it. ``device`` (cpu,
    cuda) is where it trains shadow devices and searches for images; all that is here, and all that comes back, is on
    the CPU.
    """

    store: UpdateStore
    prior_users: tuple[User, ...]
    background: tuple[User, ...]
    model: FedModule
    training: tuple[LocalTraining, ...]
    rule: ServerRule
    chronological: bool
    defences: tuple[Defence, ...] | None
    seed: int
    labels: Mapping[int, int]
    by_album: bool = False
    device: str = "cpu"

    @property
    def prior_rows(self) -> Ints:
        """Rows of the store that prior devices sent."""
        return np.flatnonzero((self.store.index["role"] == "prior").to_numpy())

    @property
    def anonymous_rows(self) -> Ints:
        """Rows of the store that anonymous devices sent: the questions."""
        return np.flatnonzero((self.store.index["role"] == "anonymous").to_numpy())

    def prior_labels(self, questions: Questions) -> Ints:
        """Return, for each of :attr:`prior_rows`, the position of its user in the options."""
        position = {user: i for i, user in enumerate(questions.options)}
        users = self.store.index["user_id"].to_numpy()[self.prior_rows]
        return np.array([position[self.labels[int(user)]] for user in users], dtype=np.int64)

    def histories(self) -> Mapping[int, NDArray[np.bool_]]:
        """Return in which rounds (T,) each user's prior device took part, and nowhere for :data:`NOBODY`."""
        sent, users = self.store.sent.history[self.prior_rows], self.store.index["user_id"].to_numpy()[self.prior_rows]
        nowhere = np.zeros(self.store.rounds, dtype=np.bool_)
        return {NOBODY: nowhere} | {int(user): history for user, history in zip(users, sent, strict=True)}

    def shuffled(self, permutation: Mapping[int, int]) -> AttackerView:
        """Return the same view with the prior devices' users exchanged: nothing is left to learn."""
        return replace(self, labels=permutation)


def ask_all(store: UpdateStore, options: tuple[int, ...]) -> Questions:
    """Ask the user of every anonymous update; subjects are observation ids."""
    index = store.index
    subjects = tuple(str(i) for i in index["obs_id"][(index["role"] == "anonymous").to_numpy()])
    if not subjects:
        raise FedprintError("no anonymous update was recorded; train more rounds or raise federation.fraction")
    return Questions(kind="user", linkage="update", subjects=subjects, options=options)
