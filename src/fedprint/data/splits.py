"""Which of a user's examples the adversary knows (prior), which stay private, which test the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from fedprint.data.examples import concat, num_examples, take
from fedprint.rng import numpy_rng
from fedprint.types import Examples, FedprintError, User

Prior = Literal["random", "chrono", "iid"]


@dataclass(frozen=True, kw_only=True)
class Split:
    """The same users three times, in the same order, each time with other examples."""

    prior: tuple[User, ...]
    private: tuple[User, ...]
    test: tuple[User, ...]


@dataclass(frozen=True, kw_only=True)
class _Rows:
    prior: np.ndarray
    private: np.ndarray
    test: np.ndarray


def split_users(
    users: Sequence[User],
    *,
    seed: int,
    prior: Prior = "random",
    test_fraction: float = 0.2,
    prior_fraction: float = 0.5,
    max_prior_examples: int | None = None,
) -> Split:
    """Split each user's examples into test (``test_fraction``), prior (``prior_fraction`` of the rest) and private.

    The three are disjoint, in order of the user's rows, hold at least one example each, and together hold every
    example unless ``max_prior_examples`` drops some of the prior at random. ``random`` draws, ``chrono`` takes as prior
    the examples with the smallest ``t`` (ties in order of the rows), ``iid`` is the control: sizes as in ``random``,
    but prior and private examples are drawn without replacement from the pool of all users' training examples
    (papers.md, section 2.2). A user's split depends on the seed and the user's id only, except under ``iid``.
    Raises FedprintError for a user with fewer than three examples and for fractions outside (0, 1).
    """
    _check_fractions(test_fraction, prior_fraction, max_prior_examples)
    rows = [_split_rows(user, seed, prior, (test_fraction, prior_fraction)) for user in users]
    kept = [_limit(row.prior, max_prior_examples, seed, user.user_id) for row, user in zip(rows, users, strict=True)]
    split = Split(
        prior=_select(users, kept),
        private=_select(users, [row.private for row in rows]),
        test=_select(users, [row.test for row in rows]),
    )
    if prior != "iid":
        return split
    pool = _select(users, [np.concatenate([row.prior, row.private]) for row in rows])
    return _deal(split, concat([user.examples for user in pool]), seed)


def _check_fractions(test: float, prior: float, limit: int | None) -> None:
    for name, value in (("test_fraction", test), ("prior_fraction", prior)):
        if not 0 < value < 1:
            raise FedprintError(f"split: {name} is {value}; choose a number between 0 and 1, both excluded")
    if limit is not None and limit < 1:
        raise FedprintError(f"split: max_prior_examples is {limit}; choose 1 or more, or leave it out for no limit")


def _split_rows(user: User, seed: int, prior: Prior, fractions: tuple[float, float]) -> _Rows:
    n = num_examples(user.examples)
    if n < 3:
        remedy = "each of test, prior and private needs one: drop the user or raise min_examples to 3 or more"
        raise FedprintError(f"user {user.user_id} has {n} example(s); {remedy}")
    shuffled = numpy_rng(seed, "split", user.user_id).permutation(n)
    n_test = _share(n, fractions[0], keep=2)
    test, rest = np.sort(shuffled[:n_test]), shuffled[n_test:]
    n_prior = _share(n - n_test, fractions[1], keep=1)
    if prior == "chrono":
        rest = np.sort(rest)
        rest = rest[np.argsort(user.examples["t"].numpy()[rest], kind="stable")]
        return _Rows(prior=rest[:n_prior], private=rest[n_prior:], test=test)
    return _Rows(prior=np.sort(rest[:n_prior]), private=np.sort(rest[n_prior:]), test=test)


def _share(n: int, fraction: float, keep: int) -> int:
    return min(max(1, round(n * fraction)), n - keep)


def _limit(rows: np.ndarray, limit: int | None, seed: int, user_id: int) -> np.ndarray:
    if limit is None or limit >= len(rows):
        return rows
    chosen = numpy_rng(seed, "prior_limit", user_id).permutation(len(rows))[:limit]
    return rows[np.sort(chosen)]


def _select(users: Sequence[User], rows: Sequence[np.ndarray]) -> tuple[User, ...]:
    pairs = zip(users, rows, strict=True)
    return tuple(replace(user, examples=take(user.examples, torch.from_numpy(row))) for user, row in pairs)


def _deal(split: Split, pool: Examples, seed: int) -> Split:
    hands = [*split.prior, *split.private]
    order = torch.from_numpy(numpy_rng(seed, "split", "iid").permutation(num_examples(pool)))
    ends = np.cumsum([0, *(num_examples(user.examples) for user in hands)])
    dealt = tuple(
        replace(user, examples=take(pool, order[start:stop]))
        for user, (start, stop) in zip(hands, pairwise(ends.tolist()), strict=True)
    )
    half = len(split.prior)
    return replace(split, prior=dealt[:half], private=dealt[half:])
