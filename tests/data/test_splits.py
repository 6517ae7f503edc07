from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedprint.data.examples import num_examples
from fedprint.data.splits import Prior, Split, has_albums, num_albums, split_albums, split_users, with_albums
from fedprint.types import FedprintError, User

Make = Callable[..., list[User]]
SIZES = st.lists(st.integers(3, 40), min_size=1, max_size=6)
PRIORS = st.sampled_from(["random", "chrono", "iid"])
SEEDS = st.integers(0, 2**40)
light = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows(users: tuple[User, ...]) -> list[set[int]]:
    return [set(user.examples["x"].tolist()) for user in users]


def in_albums(user: User, albums: list[int]) -> User:
    return replace(user, examples={**user.examples, "album": torch.tensor(albums)})


@st.composite
def album_users(draw: st.DrawFn) -> list[list[int]]:
    """Albums of each example of some users, two different albums at least."""
    lists = draw(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=30), min_size=1, max_size=4))
    return [[*albums, 6] if len(set(albums)) < 2 else albums for albums in lists]


def sizes(users: tuple[User, ...]) -> list[int]:
    return [num_examples(user.examples) for user in users]


@light
@given(SIZES, PRIORS, SEEDS, st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_split_is_disjoint_and_exhaustive(
    make_users: Make, counts: list[int], prior: Prior, seed: int, test: float, share: float
) -> None:
    users = make_users(counts, seed)
    split = split_users(users, prior=prior, seed=seed, test_fraction=test, prior_fraction=share)
    parts = (split.prior, split.private, split.test)
    every = [value for part in parts for user in part for value in user.examples["x"].tolist()]
    assert sorted(every) == list(range(sum(counts)))
    assert min(min(sizes(part)) for part in parts) >= 1
    for part in parts:
        assert [(u.user_id, u.attributes) for u in part] == [(u.user_id, u.attributes) for u in users]


@light
@given(SIZES, SEEDS)
def test_random_and_chrono_keep_rows_with_their_user(make_users: Make, counts: list[int], seed: int) -> None:
    users = make_users(counts, seed)
    for prior in ("random", "chrono"):
        split = split_users(users, prior=prior, seed=seed)
        for user, a, b, c in zip(users, rows(split.prior), rows(split.private), rows(split.test), strict=True):
            assert a | b | c == set(user.examples["x"].tolist())


@light
@given(SIZES, SEEDS)
def test_chrono_prior_is_never_later_than_private(make_users: Make, counts: list[int], seed: int) -> None:
    split = split_users(make_users(counts, seed), prior="chrono", seed=seed)
    for prior, private in zip(split.prior, split.private, strict=True):
        last, first = prior.examples["t"].max(), private.examples["t"].min()
        assert last <= first
        tied_prior = prior.examples["x"][prior.examples["t"] == last]
        tied_private = private.examples["x"][private.examples["t"] == last]
        assert not len(tied_private) or tied_prior.max() < tied_private.min()


def test_random_prior_does_mix_times(make_users: Make) -> None:
    (prior,), (private,) = (getattr(split_users(make_users([100]), seed=1), k) for k in ("prior", "private"))
    assert prior.examples["t"].max() > private.examples["t"].min()


@light
@given(SIZES, SEEDS)
def test_iid_keeps_test_rows_and_deals_the_same_sizes_anew(make_users: Make, counts: list[int], seed: int) -> None:
    users = make_users(counts, seed)
    plain, control = split_users(users, seed=seed), split_users(users, prior="iid", seed=seed)
    assert sorted(sizes(plain.prior)) == sorted(sizes(control.prior))
    assert sorted(sizes(plain.private)) == sorted(sizes(control.private))
    assert rows(plain.test) == rows(control.test)


def test_a_size_names_no_user_under_iid(make_users: Make) -> None:
    users = make_users(range(10, 210))
    plain, control = split_users(users, seed=0), split_users(users, prior="iid", seed=0)
    assert np.corrcoef(sizes(plain.prior), sizes(plain.private))[0, 1] > 0.99
    assert abs(np.corrcoef(sizes(control.prior), sizes(control.private))[0, 1]) < 0.25


def test_iid_gives_everyone_about_an_equal_share_of_everyone(make_users: Make) -> None:
    control = split_users(make_users([200] * 5), prior="iid", seed=3)
    for user in (*control.prior, *control.private):
        owners = torch.bincount(user.examples["x"] // 200, minlength=5)
        assert owners.min() >= 5
        assert owners.max() <= 30


def test_default_shares_are_20_40_40(make_users: Make) -> None:
    split = split_users(make_users([100, 10]), seed=0)
    assert (sizes(split.test), sizes(split.prior), sizes(split.private)) == ([20, 2], [40, 4], [40, 4])


@pytest.mark.parametrize("prior", ["random", "chrono", "iid"])
def test_limited_prior_is_a_part_of_the_full_one_or_of_the_pool(make_users: Make, prior: Prior) -> None:
    users = make_users([30, 40])
    full, limited = (
        split_users(users, prior=prior, seed=5),
        split_users(users, prior=prior, seed=5, max_prior_examples=2),
    )
    assert sizes(limited.prior) == [2, 2]
    assert sizes(limited.private) == sizes(full.private)
    if prior != "iid":
        assert all(few <= all_ for few, all_ in zip(rows(limited.prior), rows(full.prior), strict=True))
        assert rows(limited.private) == rows(full.private)


@pytest.mark.parametrize("prior", ["random", "chrono", "iid"])
def test_limited_private_part_leaves_the_prior_alone(make_users: Make, prior: Prior) -> None:
    users = make_users([30, 40])
    full, limited = (
        split_users(users, prior=prior, seed=5),
        split_users(users, prior=prior, seed=5, max_private_examples=3),
    )
    assert sizes(limited.private) == [3, 3] and sizes(limited.prior) == sizes(full.prior)
    if prior != "iid":
        assert all(few <= all_ for few, all_ in zip(rows(limited.private), rows(full.private), strict=True))
        assert rows(limited.prior) == rows(full.prior)


def test_a_users_split_does_not_depend_on_the_others(make_users: Make) -> None:
    users = make_users([30, 40, 50])
    alone, together = split_users(users[1:2], seed=5), split_users(users, seed=5)
    assert rows(alone.prior) == rows(together.prior)[1:2]


def test_seed_decides_the_split(make_users: Make) -> None:
    def draw(seed: int) -> Split:
        return split_users(make_users([30, 40]), seed=seed)

    assert rows(draw(1).prior) == rows(draw(1).prior)
    assert rows(draw(1).prior) != rows(draw(2).prior)


@pytest.mark.parametrize("count", [1, 2])
def test_user_with_too_few_examples_is_named(make_users: Make, count: int) -> None:
    with pytest.raises(FedprintError, match=rf"user 11 has {count} example.*min_examples"):
        split_users(make_users([9, count]), seed=0)


def test_bad_fractions_and_limits_are_named(make_users: Make) -> None:
    for options, says in (
        ({"test_fraction": 0.0}, "test_fraction is 0.0"),
        ({"prior_fraction": 1.0}, "prior_fraction is 1.0"),
        ({"max_prior_examples": 0}, "max_prior_examples is 0"),
        ({"max_private_examples": 0}, "max_private_examples is 0"),
    ):
        with pytest.raises(FedprintError, match=says):
            split_users(make_users([9]), seed=0, **options)  # type: ignore[arg-type]


# ---- whole albums on one side ---------------------------------------------------------------------------------------


@light
@given(album_users(), SEEDS, st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_no_album_is_on_both_sides(
    make_users: Make, albums: list[list[int]], seed: int, test: float, share: float
) -> None:
    users = [in_albums(*pair) for pair in zip(make_users(list(map(len, albums))), albums, strict=True)]
    split = split_users(users, prior="photoset", seed=seed, test_fraction=test, prior_fraction=share)
    for user, a, b, c in zip(users, split.prior, split.private, split.test, strict=True):
        assert not set(a.examples["album"].tolist()) & set(b.examples["album"].tolist())
        together = torch.cat([part.examples["x"] for part in (a, b, c)])
        assert sorted(together.tolist()) == user.examples["x"].tolist()
        assert min(map(len, (a.examples["x"], b.examples["x"], c.examples["x"]))) >= 1
        assert all((part.examples["x"].diff() > 0).all() for part in (a, b, c)), "in order of the user's rows"


def test_the_test_examples_are_those_of_the_other_priors(make_users: Make) -> None:
    users = [in_albums(user, [i // 5 for i in range(40)]) for user in make_users([40, 40])]
    assert rows(split_users(users, prior="photoset", seed=2).test) == rows(split_users(users, seed=2).test)


def test_a_user_whose_second_album_would_be_all_test_gives_another_example(make_users: Make) -> None:
    (user,) = make_users([10])
    users = [in_albums(user, [0] * 9 + [1])]
    lost = [seed for seed in range(40) if 9 in rows(split_users(users, seed=seed).test)[0]]
    assert lost
    for seed in lost:
        split = split_users(users, prior="photoset", seed=seed)
        assert 9 in rows(split.prior)[0] | rows(split.private)[0]
        assert sizes(split.test) == [2]


@light
@given(st.lists(st.integers(0, 6), min_size=2, max_size=40), st.floats(0.01, 0.99), SEEDS)
def test_albums_are_taken_until_the_share_is_as_close_as_it_gets(album: list[int], share: float, seed: int) -> None:
    numbers = np.array([*album, 7])
    first = split_albums(numbers, share, np.random.default_rng(seed))
    names, counts = np.unique(numbers, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    prefixes = [counts[order[:k]].sum() for k in range(1, len(names))]
    best = min(prefixes, key=lambda reached: (abs(reached - share * len(numbers)), reached))
    assert first.sum() == best
    assert set(numbers[first]).isdisjoint(numbers[~first])


def test_about_half_of_the_examples_are_prior_when_albums_are_small(make_users: Make) -> None:
    users = [in_albums(user, [i // 4 for i in range(200)]) for user in make_users([200])]
    split = split_users(users, prior="photoset", seed=0)
    assert abs(sizes(split.prior)[0] - 80) <= 4
    assert num_albums(split.prior[0].examples) > 15


def test_a_user_with_a_single_album_is_named_with_the_remedy(make_users: Make) -> None:
    first, second, third = make_users([9, 9, 9])
    users = [in_albums(first, [1] * 9), in_albums(second, [1] * 5 + [2] * 4), in_albums(third, [3] * 8 + [2])]
    with pytest.raises(FedprintError, match=r"user 10 has a single album.*split\.min_albums=2"):
        split_users(users, prior="photoset", seed=0)
    kept = with_albums(users, 2)
    assert [user.user_id for user in kept] == [11, 12]
    split_users(kept, prior="photoset", seed=0)
    with pytest.raises(FedprintError, match=r"0 of 3 users have 3 albums; lower split\.min_albums"):
        with_albums(users, 3)
    with pytest.raises(FedprintError, match="1 user takes part"):
        with_albums(users[:1], 1)


def test_albums_of_one_example_are_no_albums(make_users: Make) -> None:
    first, second = make_users([4, 4])
    alone = [in_albums(first, [0, 1, 2, 3]), in_albums(second, [4, 5, 6, 7])]
    assert not has_albums(alone)
    assert has_albums([*alone, in_albums(second, [4, 4, 6, 7])])
