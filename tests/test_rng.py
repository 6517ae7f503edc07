"""Seeds depend on their path only."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from fedprint.rng import numpy_rng, seed_for, torch_rng

GOLDEN = {
    (0,): 4761921975702974394,
    (0, "cohort", 0): 2650083936929075515,
    (0, "cohort", 1): 9037807981105676339,
    (1, "client", 12, "user-3-anonymous"): 4500348196250428390,
    (2**63 - 1, "é", None): 516835752101570054,
}
PATHS = st.lists(st.one_of(st.integers(), st.text("abc-0123", max_size=6)), max_size=4)


@pytest.mark.parametrize("path", GOLDEN)
def test_seeds_never_change(path: tuple[int, ...]) -> None:
    """A new value here breaks every published number and every half-finished store."""
    assert seed_for(*path) == GOLDEN[path]


@given(root=st.integers(), names=PATHS)
def test_a_seed_has_63_bits(root: int, names: list[object]) -> None:
    assert 0 <= seed_for(root, *names) < 2**63


def test_every_one_of_the_63_bits_is_used() -> None:
    seeds = np.array([seed_for(0, i) for i in range(2000)])
    bits = (seeds[:, None] >> np.arange(63)) & 1
    assert stats.binomtest(int(bits.sum()), bits.size, 0.5).pvalue > 1e-4
    assert bits.mean(0).min() > 0.4
    assert bits.mean(0).max() < 0.6


@given(root=st.integers(0, 5), a=PATHS, b=PATHS)
def test_different_paths_give_different_seeds(root: int, a: list[object], b: list[object]) -> None:
    assume([str(name) for name in a] != [str(name) for name in b])
    assert seed_for(root, *a) != seed_for(root, *b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((0, "a", "b"), (0, "b", "a")),
        ((0, "ab"), (0, "a", "b")),
        ((0, "a", ""), (0, "a")),
        ((1, 2), (12,)),
        ((0, 1), (1, 0)),
    ],
)
def test_order_and_boundaries_of_a_path_count(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert seed_for(*a) != seed_for(*b)


def test_what_was_asked_before_does_not_count() -> None:
    paths = [(seed, "client", t) for seed in range(3) for t in range(20)]
    forward = {path: seed_for(*path) for path in paths}
    backward = {path: seed_for(*path) for path in reversed(paths)}
    assert forward == backward
    assert len(set(forward.values())) == len(paths)


def test_neighbouring_paths_give_unrelated_streams() -> None:
    draws = np.stack([torch.randn(500, generator=torch_rng(0, "client", t)).numpy() for t in range(40)])
    correlations = np.corrcoef(draws)[np.triu_indices(40, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(500)
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-4


def test_generators_start_at_their_seed_and_are_new_each_time() -> None:
    assert torch_rng(3, "x").initial_seed() == seed_for(3, "x")
    assert torch.equal(torch.randn(5, generator=torch_rng(3, "x")), torch.randn(5, generator=torch_rng(3, "x")))
    assert numpy_rng(3, "x").random(5).tolist() == np.random.default_rng(seed_for(3, "x")).random(5).tolist()


def test_no_generator_touches_the_global_ones() -> None:
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    torch.randn(5, generator=torch_rng(0))
    numpy_rng(0).random(5)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_another_process_with_another_hash_seed_gives_the_same_seed() -> None:
    script = "from fedprint.rng import seed_for; print(seed_for(1, 'client', 12, 'user-3-anonymous'))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "42"},
    )
    assert int(done.stdout) == seed_for(1, "client", 12, "user-3-anonymous")
