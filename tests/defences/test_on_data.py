"""Defences at point 1: the contract of all, and what each adds or replaces."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedprint.data.examples import CLUSTER, CODE, CODE_WEIGHT
from fedprint.defences.counterweight import CounterAug
from fedprint.defences.on_counts import SameSize
from fedprint.defences.on_data import BkgRepl, MmAug, RandAug, RepeatAug
from fedprint.defences.on_update import Noise
from fedprint.defences.secret_head import SecretHead, secret_head
from fedprint.kinds.components import Defence
from fedprint.rng import torch_rng
from fedprint.types import DataDefence, Examples, FedprintError, UpdateDefence

IDENTITY = [BkgRepl(alpha=0), RandAug(alpha=0), RepeatAug(alpha=0), MmAug(alpha=0), CounterAug(alpha=0)]
ADDING = [RandAug(alpha=0.5), RandAug(alpha=4), MmAug(alpha=0.5), MmAug(alpha=2.2)]
ADDING += [CounterAug(alpha=0.5), CounterAug(alpha=2.2, candidates=30, repeats=3)]
ADDING += [CounterAug(alpha=1, repeats=2, choice="herding")]
ADDING += [RepeatAug(alpha=0.5), RepeatAug(alpha=2.2, repeats=3)]
ACTIVE = [BkgRepl(alpha=0.3), BkgRepl(alpha=1), *ADDING]
OWN, STRANGE = 1000, -1000
MODES = 4


def numbered(n: int, first: int) -> Examples:
    """Return n examples whose pixels and label all are their own number."""
    ids = torch.arange(first, first + n)
    return {"x": ids.float().reshape(-1, 1, 1, 1).expand(-1, 1, 3, 3).clone(), "y": ids, "t": ids.clone()}


def own(n: int = 20) -> Examples:
    return numbered(n, OWN)


def background(n: int = 50) -> Examples:
    """Return n examples; the mode of each is its number modulo 4, but mode 2 is named 7."""
    examples = numbered(n, STRANGE)
    mode = examples["y"] % MODES
    return {**examples, CLUSTER: torch.where(mode == 2, 7, mode)}


def test_every_data_defence_is_under_the_contract() -> None:
    known = {kind for kind in get_args(get_args(Defence)[0]) if issubclass(kind, DataDefence)}
    known -= {SecretHead, SameSize}  # these add no background: their contracts are below and in test_on_counts.py
    assert known == {type(defence) for defence in IDENTITY} == {type(defence) for defence in ACTIVE}


@pytest.mark.parametrize("y", [own()["y"] % 3, torch.eye(20)])
def test_the_secret_head_leaves_the_examples_alone_and_adds_the_devices_codes(y: torch.Tensor) -> None:
    mine = {**own(), "y": y}
    kept = SecretHead(bits=8, alpha2=0.2).on_data(mine, {}, torch_rng(0))
    assert all(kept[column] is mine[column] for column in mine)
    assert kept[CODE].shape == (20, 8) and kept[CODE].dtype == mine["x"].dtype
    assert kept[CODE_WEIGHT].tolist() == pytest.approx([0.2] * 20)
    assert not torch.equal(kept[CODE], SecretHead(bits=8).on_data(mine, {}, torch_rng(1))[CODE])


def test_the_secret_head_comes_once_and_behind_what_adds_examples() -> None:
    spn = SecretHead()
    assert secret_head([RandAug(alpha=1), Noise(sigma=1), spn, Noise(sigma=1)]) == spn
    assert secret_head([RandAug(alpha=1)]) is None
    with pytest.raises(ValueError, match="rand-aug after spn would add examples without codes"):
        secret_head([spn, RandAug(alpha=1)])
    with pytest.raises(ValueError, match="one secret head"):
        secret_head([spn, spn])


@pytest.mark.parametrize("defence", [*IDENTITY, *ACTIVE, SecretHead()])
def test_a_defence_acts_at_one_point(defence: DataDefence) -> None:
    assert isinstance(defence, DataDefence)
    assert not isinstance(defence, UpdateDefence)


@pytest.mark.parametrize("defence", IDENTITY)
def test_identity_settings_change_nothing_and_need_no_background(defence: DataDefence) -> None:
    kept = defence.on_data(own(), {}, torch_rng(0))
    assert all(torch.equal(kept[column], own()[column]) for column in ("x", "y"))


@pytest.mark.parametrize("defence", ACTIVE)
def test_other_settings_change_something(defence: DataDefence) -> None:
    kept = defence.on_data(own(), background(), torch_rng(0))
    assert not torch.equal(kept["x"], own()["x"])
    assert set(kept) == {"x", "y"}


@pytest.mark.parametrize("defence", [*IDENTITY, *ACTIVE])
@pytest.mark.parametrize("n", [1, 2, 20])
def test_there_stays_an_example_and_types_and_shapes_stay(defence: DataDefence, n: int) -> None:
    kept = defence.on_data(own(n), background(), torch_rng(0))
    assert len(kept["x"]) == len(kept["y"]) >= 1
    assert all(kept[column].dtype == own()[column].dtype for column in ("x", "y"))
    assert kept["x"].shape[1:] == own()["x"].shape[1:]


@pytest.mark.parametrize("defence", ACTIVE)
def test_what_was_given_is_left_alone(defence: DataDefence) -> None:
    mine, pool = own(), background()
    kept = defence.on_data(mine, pool, torch_rng(0))
    kept["x"].zero_()
    assert all(torch.equal(mine[column], own()[column]) for column in mine)
    assert all(torch.equal(pool[column], background()[column]) for column in pool)


@pytest.mark.parametrize(
    "defence",
    [BkgRepl(alpha=0.3), RandAug(alpha=1), RepeatAug(alpha=1), MmAug(alpha=1), CounterAug(alpha=1, candidates=20)],
)
def test_randomness_is_the_generators_only(defence: DataDefence) -> None:
    torch.manual_seed(1)
    first = defence.on_data(own(), background(), torch_rng(0, "a"))
    torch.manual_seed(2)
    assert torch.equal(defence.on_data(own(), background(), torch_rng(0, "a"))["y"], first["y"])
    assert not torch.equal(defence.on_data(own(), background(), torch_rng(0, "b"))["y"], first["y"])


@given(n=st.integers(1, 40), alpha=st.floats(0, 1), pool=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_a_share_alpha_comes_from_the_background_and_the_rest_keeps_its_place(
    n: int, alpha: float, pool: int, seed: int
) -> None:
    kept = BkgRepl(alpha=alpha).on_data(own(n), background(pool), torch.Generator().manual_seed(seed))
    strange = kept["y"] < 0
    assert int(strange.sum()) == round(alpha * n)
    assert torch.equal(kept["y"][~strange], own(n)["y"][~strange])
    assert torch.equal(kept["x"][:, 0, 1, 1].long(), kept["y"]), "an example and its label come together"
    assert set(kept["y"][strange].tolist()) <= set(background(pool)["y"].tolist())
    if round(alpha * n) <= pool:
        assert len(set(kept["y"].tolist())) == n, "without replacement where the background is large enough"


def test_each_example_is_as_likely_to_go_and_each_stranger_to_come() -> None:
    gone, came = torch.zeros(10), torch.zeros(30)
    for seed in range(600):
        kept = BkgRepl(alpha=0.5).on_data(own(10), background(30), torch_rng(seed))["y"]
        gone += kept < 0
        came[kept[kept < 0] - STRANGE] += 1
    assert 240 < float(gone.min()) <= float(gone.max()) < 360  # 300 expected, standard deviation 12
    assert 50 < float(came.min()) <= float(came.max()) < 150  # 100 expected, standard deviation 9


# ---- augmentation --------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 40), alpha=st.floats(0, 5), pool=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_own_examples_come_first_and_exactly_alpha_n_strangers_after_them(
    n: int, alpha: float, pool: int, seed: int
) -> None:
    adding = (RandAug(alpha=alpha), RepeatAug(alpha=alpha), MmAug(alpha=alpha), CounterAug(alpha=alpha, candidates=10))
    for defence in adding:
        kept = defence.on_data(own(n), background(pool), torch.Generator().manual_seed(seed))
        assert len(kept["y"]) == n + round(alpha * n)
        assert all(torch.equal(kept[column][:n], own(n)[column]) for column in ("x", "y"))
        assert torch.equal(kept["x"][:, 0, 1, 1].long(), kept["y"]), "an example and its label come together"
        assert set(kept["y"][n:].tolist()) <= set(background(pool)["y"].tolist())


@pytest.mark.parametrize(("defence", "available"), [(RandAug(alpha=4.4), 20), (MmAug(alpha=4.4), 5)])
def test_nobody_comes_again_before_everybody_has_come(defence: DataDefence, available: int) -> None:
    n = 10
    came = defence.on_data(own(n), background(20), torch_rng(0))["y"][n:].tolist()
    for start in range(0, 44, available):
        some = came[start : start + available]
        assert len(set(some)) == len(some)
    assert len(set(came)) == available


@pytest.mark.parametrize("repeats", [1, 3, 4, 50])
@pytest.mark.parametrize("kind", [RepeatAug, CounterAug])
def test_each_stranger_comes_as_often_as_asked_for(kind: type[RepeatAug] | type[CounterAug], repeats: int) -> None:
    came = Counter(kind(alpha=1, repeats=repeats).on_data(own(20), background(), torch_rng(0))["y"][20:].tolist())
    assert sorted(came.values(), reverse=True) == [repeats] * (20 // repeats) + [20 % repeats] * bool(20 % repeats)


def test_repeat_aug_that_repeats_nobody_is_rand_aug() -> None:
    a, b = (
        defence.on_data(own(20), background(), torch_rng(4))["y"].tolist()
        for defence in (RandAug(alpha=1.5), RepeatAug(alpha=1.5, repeats=1))
    )
    assert a == b


def test_repeats_multiply_the_variance_of_what_is_added() -> None:
    """k different examples r times: variance r (r k), r times that of as many examples that all differ."""

    def spread(repeats: int) -> float:
        defence, pool = RepeatAug(alpha=2, repeats=repeats), background(400)
        sums = [defence.on_data(own(20), pool, torch_rng(seed))["y"][20:].double().sum() for seed in range(400)]
        return float(torch.stack(sums).var())

    whole = spread(1)  # drawn without replacement from 400: a tenth less variance than with it
    for repeats in (2, 4, 8):
        assert 0.75 * repeats < spread(repeats) / whole < 1.5 * repeats


def test_a_large_background_gives_everybody_once() -> None:
    came = RandAug(alpha=2).on_data(own(20), background(41), torch_rng(0))["y"][20:]
    assert len(set(came.tolist())) == 40


@pytest.mark.parametrize("alpha", [0.1, 1, 3])
def test_mm_aug_draws_from_a_single_mode(alpha: float) -> None:
    pool = background()
    mode_of = dict(zip(pool["y"].tolist(), pool[CLUSTER].tolist(), strict=True))
    chosen = []
    for seed in range(80):
        came = MmAug(alpha=alpha).on_data(own(20), pool, torch_rng(seed))["y"][20:]
        modes = {mode_of[stranger] for stranger in came.tolist()}
        assert len(modes) == 1
        chosen += modes
    counts = [chosen.count(mode) for mode in (0, 1, 3, 7)]
    assert sum(counts) == 80
    assert min(counts) >= 8  # 20 expected, standard deviation 4


def test_a_users_mode_does_not_depend_on_how_much_it_takes() -> None:
    pool = background()
    firsts = [MmAug(alpha=alpha).on_data(own(20), pool, torch_rng(3))["y"][20:] for alpha in (0.05, 0.5, 4)]
    assert len({int(y) % MODES for came in firsts for y in came}) == 1


def test_rand_aug_takes_every_stranger_as_often() -> None:
    came = torch.zeros(30)
    for seed in range(600):
        came[RandAug(alpha=0.5).on_data(own(10), background(30), torch_rng(seed))["y"][10:] - STRANGE] += 1
    assert 50 < float(came.min()) <= float(came.max()) < 150  # 100 expected, standard deviation 9


def test_mm_aug_without_clusters_is_an_error_with_a_remedy() -> None:
    with pytest.raises(FedprintError, match=r"defences\.mm-aug: the background has no clusters"):
        MmAug(alpha=1).on_data(own(), numbered(50, STRANGE), torch_rng(0))


# ---- all -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "defence", [BkgRepl(alpha=1), RandAug(alpha=1), RepeatAug(alpha=1), MmAug(alpha=1), CounterAug(alpha=1)]
)
def test_pixels_from_the_background_take_the_users_type(defence: DataDefence) -> None:
    mine = {"x": torch.zeros(4, 1, 2, 2, dtype=torch.float64), "y": torch.zeros(4, 3, dtype=torch.float64)}
    pool = {"x": torch.ones(9, 1, 2, 2), "y": torch.ones(9, 3), CLUSTER: torch.zeros(9, dtype=torch.int64)}
    kept = defence.on_data(mine, pool, torch_rng(0))
    assert (kept["x"].dtype, kept["y"].dtype) == (torch.float64, torch.float64)
    assert float(kept["x"][-4:].min()) == float(kept["y"][-4:].min()) == 1


@pytest.mark.parametrize(
    "defence",
    [BkgRepl(alpha=0.5), RandAug(alpha=0.5), RepeatAug(alpha=0.5), MmAug(alpha=0.5), CounterAug(alpha=0.5)],
)
@pytest.mark.parametrize("pool", [{}, {"x": torch.zeros(0, 1, 3, 3), "y": torch.zeros(0)}])
def test_no_background_is_an_error_with_a_remedy(defence: DataDefence, pool: Examples) -> None:
    with pytest.raises(FedprintError, match=r"defences\.[a-z-]+: .* no background examples; choose a source"):
        defence.on_data(own(), pool, torch_rng(0))


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_an_impossible_alpha_is_refused(alpha: float) -> None:
    with pytest.raises(ValidationError, match="alpha"):
        BkgRepl(alpha=alpha)


@pytest.mark.parametrize("kind", [RandAug, RepeatAug, MmAug, CounterAug])
@pytest.mark.parametrize("alpha", [-0.1, float("nan"), float("inf"), (), (1, -1)])
def test_an_impossible_amount_is_refused(kind: type, alpha: object) -> None:
    with pytest.raises(ValidationError, match="alpha"):
        kind(alpha=alpha)


def test_a_single_mode_would_be_rand_aug() -> None:
    with pytest.raises(ValidationError, match="clusters"):
        MmAug(alpha=1, clusters=1)
