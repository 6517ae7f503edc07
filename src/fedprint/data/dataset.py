"""A data set ready to be split: users with encoded examples, and other people's data as background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedprint.types import User

Task = Literal["single_label", "multi_label", "language_model", "regression"]

TEXT_TASKS: tuple[Task, ...] = ("language_model", "regression")
"""Tasks whose inputs are token ids."""

PAD, UNKNOWN, START = 0, 1, 2
"""Token ids below 3 are not words."""

IGNORED = -100
"""Target value that takes no part in loss or utility (padding, unknown words)."""


@dataclass(frozen=True, kw_only=True)
class Meta:
    """The header of a data set; ``class_names`` are the labels, or the vocabulary of a text model by token id."""

    name: str
    task: Task
    class_names: tuple[str, ...]
    has_time: bool
    shareable: bool
    licence: str
    sha256: str
    scale: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Dataset(Meta):
    """Users and background of one source.

    Columns of every ``User.examples`` -- images: ``x`` uint8 (n, channels, h, w), ``y`` int64 (n,) for single_label or
    float32 multi-hot (n, classes) for multi_label; text: ``x`` int64 (n, length) token ids starting with START, ``y``
    int64 (n, length) the next token or IGNORED; regression: ``x`` as for text, ``y`` float32 (n,) ratings within
    ``scale`` (lowest, highest), which is None for other tasks. Always ``t`` int64 (n,), ascending in time (0.. where
    the source has none) and ``album`` int64 (n,) (event, session or post; all different where the source has none).
    Images may have ``caption`` uint8 (n, bytes), a text about each (data/text_columns.py), which no model sees.
    ``test`` are examples that the source itself holds out, by the same users in the same order; empty where the split
    takes a share of each user's examples for the test.
    """

    users: tuple[User, ...]
    background: tuple[User, ...]
    test: tuple[User, ...] = ()
