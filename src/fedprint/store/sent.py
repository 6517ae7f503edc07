"""The side channels of an update: what a server learns about its sender without its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedprint.types import Ints


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What is known of n updates: the number of ``examples`` that each sender named, and the ``rounds``, both (n,).

    ``history`` (n, T) says in which of T rounds the sender took part. Empty where nothing is known.
    """

    examples: Ints
    rounds: Ints
    history: NDArray[np.bool_]

    @classmethod
    def unknown(cls) -> Self:
        """Return that nothing is known."""
        none = np.zeros(0, dtype=np.int64)
        return cls(examples=none, rounds=none, history=np.zeros((0, 0), dtype=np.bool_))

    @property
    def known(self) -> bool:
        """Whether anything is known."""
        return len(self.examples) > 0

    def rows(self, rows: NDArray[np.integer] | slice) -> Self:
        """Return what is known of some updates."""
        if not self.known:
            return self
        return type(self)(examples=self.examples[rows], rounds=self.rounds[rows], history=self.history[rows])

    def joined(self, other: Self) -> Self:
        """Return what is known of these updates and then others; nothing where nothing is known of either."""
        if not self.known or not other.known:
            return self.unknown()
        return type(self)(
            examples=np.concatenate([self.examples, other.examples]),
            rounds=np.concatenate([self.rounds, other.rounds]),
            history=np.concatenate([self.history, other.history]),
        )
