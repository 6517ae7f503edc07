"""Splits of each user's examples into prior (known to the adversary), private and test examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from fedprint.data.examples import concat, num_examples, take
from fedprint.rng import numpy_rng
from fedprint.types import Examples, FedprintError, User

Prior = Literal["random", "chrono", "photoset", "iid"]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Three disjoint parts of the examples of the same users, in the same order."""

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
    max_private_examples: int | None = None,
    test: Sequence[User] = (),
) -> Split:
    """Split each user's examples into test (``test_fraction``), prior (``prior_fraction`` of the rest) and private.

    The three are disjoint, in order of the user's rows, hold at least one example each, and together hold every
    example unless ``max_prior_examples`` or ``max_private_examples`` drops some of a part at random. ``random`` draws,
    ``chrono`` takes as prior the examples with the smallest ``t`` (ties in order of the rows), ``photoset`` puts whole
    albums on one side
    (:func:`split_albums`), ``iid`` is the control: the sizes of ``random``, but sizes and examples are drawn
    without replacement from the pool of all users' training examples (papers.md, section 2.2). A user's split depends
    on the seed and the user's id only, except under ``iid``.

    The test examples are the same under every prior, drawn at random and not by album, so that utility can be compared
    across priors; no attack sees them. ``photoset`` exchanges one test example where a user of several albums would
    otherwise keep a single one. Where the source brings a ``test`` set, of the same users in the same order, that is
    used and users keep all of their examples for training. Raises FedprintError for a user with fewer than three
    examples, under ``photoset`` for a user with a single album, and for fractions outside (0, 1).
    """
    limits = {"prior": max_prior_examples, "private": max_private_examples}
    _check_fractions(test_fraction, prior_fraction, limits)
    share = 0.0 if test else test_fraction
    rows = [_split_rows(user, seed, prior, (share, prior_fraction)) for user in users]

    def kept(part: str) -> list[np.ndarray]:
        of = zip(rows, users, strict=True)
        return [_limit(part, getattr(row, part), limits[part], seed, user.user_id) for row, user in of]

    split = Split(
        prior=_select(users, kept("prior")),
        private=_select(users, kept("private")),
        test=tuple(test) or _select(users, [row.test for row in rows]),
    )
    if prior != "iid":
        return split
    pool = _select(users, [np.concatenate([row.prior, row.private]) for row in rows])
    return _deal(split, concat([user.examples for user in pool]), seed)


def _check_fractions(test: float, prior: float, limits: Mapping[str, int | None]) -> None:
    for name, value in (("test_fraction", test), ("prior_fraction", prior)):
        if not 0 < value < 1:
            raise FedprintError(f"split: {name} is {value}; choose a number between 0 and 1, both excluded")
    for part, limit in limits.items():
        if limit is not None and limit < 1:
            raise FedprintError(
                f"split: max_{part}_examples is {limit}; choose 1 or more, or leave it out for no limit"
            )


def _split_rows(user: User, seed: int, prior: Prior, fractions: tuple[float, float]) -> _Rows:
    n = num_examples(user.examples)
    if n < 3:
        remedy = "test, prior and private need one each: drop the user or raise min_examples to 3 or more"
        raise FedprintError(f"user {user.user_id} has {n} example(s); {remedy}")
    shuffled = numpy_rng(seed, "split", user.user_id).permutation(n)
    n_test = _share(n, fractions[0], keep=2) if fractions[0] else 0
    test, rest = np.sort(shuffled[:n_test]), shuffled[n_test:]
    n_prior = _share(n - n_test, fractions[1], keep=1)
    if prior == "photoset":
        return _split_by_album(user, test, rest, seed, fractions[1])
    if prior == "chrono":
        rest = np.sort(rest)
        rest = rest[np.argsort(user.examples["t"].numpy()[rest], kind="stable")]
        return _Rows(prior=rest[:n_prior], private=rest[n_prior:], test=test)
    return _Rows(prior=np.sort(rest[:n_prior]), private=np.sort(rest[n_prior:]), test=test)


def split_albums(album: np.ndarray, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Return which examples (n,) are in the first part: whole albums in random order, about ``fraction`` of all.

    ``album`` (n,) holds at least two different numbers. As many albums are taken as bring the part closest to
    ``fraction`` (of two equally close the fewer), but never none and never all.
    """
    names, sizes = np.unique(album, return_counts=True)
    order = rng.permutation(len(names))
    reached = np.cumsum(sizes[order])[:-1]
    taken = int(np.argmin(np.abs(reached - fraction * len(album)))) + 1
    return np.isin(album, names[order[:taken]])


def num_albums(examples: Examples) -> int:
    """Return how many different albums there are."""
    return len(np.unique(examples["album"].numpy()))


def with_albums(users: Sequence[User], least: int) -> tuple[User, ...]:
    """Return the users with at least ``least`` albums. Raises FedprintError when fewer than two are left."""
    if len(users) < 2:
        raise FedprintError(
            f"split: {len(users)} user takes part, and an attack tells users apart; take 2 or more (data.users, "
            "data.min_examples, or more people in the folder)"
        )
    kept = tuple(user for user in users if num_albums(user.examples) >= least)
    if len(kept) < 2:
        raise FedprintError(f"split: {len(kept)} of {len(users)} users have {least} albums; lower split.min_albums")
    return kept


def has_albums(users: Sequence[User]) -> bool:
    """Return whether any album holds two examples; otherwise a split by album is a random split."""
    return any(num_albums(user.examples) < num_examples(user.examples) for user in users)


def _split_by_album(user: User, test: np.ndarray, rest: np.ndarray, seed: int, fraction: float) -> _Rows:
    album = user.examples["album"].numpy()
    if num_albums(user.examples) < 2:
        remedy = "set split.min_albums=2, which leaves such users out under every prior, or leave photoset out"
        raise FedprintError(f"user {user.user_id} has a single album, photoset needs two; {remedy}")
    if len(np.unique(album[rest])) == 1:
        other = np.flatnonzero(album[test] != album[rest[0]])[0]
        test[other], rest[0] = rest[0], test[other]
        test.sort()
    rest = np.sort(rest)
    first = split_albums(album[rest], fraction, numpy_rng(seed, "split_albums", user.user_id))
    return _Rows(prior=rest[first], private=rest[~first], test=test)


def _share(n: int, fraction: float, keep: int) -> int:
    return min(max(1, round(n * fraction)), n - keep)


def _limit(part: str, rows: np.ndarray, limit: int | None, seed: int, user_id: int) -> np.ndarray:
    if limit is None or limit >= len(rows):
        return rows
    chosen = numpy_rng(seed, f"{part}_limit", user_id).permutation(len(rows))[:limit]
    return rows[np.sort(chosen)]


def _select(users: Sequence[User], rows: Sequence[np.ndarray]) -> tuple[User, ...]:
    pairs = zip(users, rows, strict=True)
    return tuple(replace(user, examples=take(user.examples, torch.from_numpy(row))) for user, row in pairs)


def _deal(split: Split, pool: Examples, seed: int) -> Split:
    """Deal the pool of all users to the devices, and their sizes too: a size would name its user."""
    parts, rng = [*split.prior, *split.private], numpy_rng(seed, "split", "iid")
    order = torch.from_numpy(rng.permutation(num_examples(pool)))
    sizes = [rng.permutation([num_examples(user.examples) for user in of]) for of in (split.prior, split.private)]
    ends = np.cumsum([0, *sizes[0], *sizes[1]])
    dealt = tuple(
        replace(user, examples=take(pool, order[start:stop]))
        for user, (start, stop) in zip(parts, pairwise(ends.tolist()), strict=True)
    )
    half = len(split.prior)
    return replace(split, prior=dealt[:half], private=dealt[half:])
