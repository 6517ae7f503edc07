"""counter-aug: what it adds brings the user's sum of deviations towards zero, for pictures, words and ratings."""

from __future__ import annotations

import pytest
import torch

from fedprint.data.dataset import IGNORED
from fedprint.defences.counterweight import CounterAug, counterweights, describe, sample_tilted
from fedprint.defences.on_data import RandAug, RepeatAug
from fedprint.rng import torch_rng
from fedprint.types import Examples


def pictures(n: int, classes: tuple[int, ...], bright: float, seed: int) -> Examples:
    """Return pictures that are ``bright``, or of any brightness up to it either way where it is negative."""
    rng = torch_rng(seed)
    y = torch.tensor(classes)[torch.randint(len(classes), (n,), generator=rng)]
    shade = bright * (2 * torch.rand(n, 1, 1, 1, generator=rng) - 1) if bright < 0 else bright
    return {"x": shade + torch.rand(n, 1, 14, 14, generator=rng), "y": y}


def texts(n: int, low: int, high: int, seed: int) -> Examples:
    tokens = torch.randint(low, high, (n, 9), generator=torch_rng(seed))
    return {"x": tokens[:, :-1], "y": tokens[:, 1:]}


def ratings(n: int, stars: float, seed: int) -> Examples:
    rng = torch_rng(seed)
    return {
        "x": torch.randint(3, 30, (n, 8), generator=rng),
        "y": stars + torch.rand(n, generator=rng),
    }


CASES = {
    "pictures": (pictures(30, (0, 1), 0.5, 1), pictures(1500, tuple(range(10)), -1.0, 2)),
    "texts": (texts(30, 3, 12, 1), texts(1500, 3, 60, 2)),
    "ratings": (ratings(30, 4.0, 1), ratings(1500, 2.5, 2)),
}


def left_over(kept: Examples, background: Examples) -> float:
    """Return the length of the mean deviation from the background."""
    user, _ = describe(kept, background, "both")
    return float(user.mean(0).norm())


@pytest.mark.parametrize("case", CASES)
def test_the_mean_deviation_gets_smaller_than_by_as_many_random_examples(case: str) -> None:
    mine, background = CASES[case]
    before = left_over(mine, background)
    random = left_over(RandAug(alpha=2).on_data(mine, background, torch_rng(0)), background)
    chosen = left_over(CounterAug(alpha=2, choice="herding").on_data(mine, background, torch_rng(0)), background)
    assert random < before
    assert chosen < 0.8 * random


@pytest.mark.parametrize("case", CASES)
def test_a_little_choice_helps_where_examples_repeat_too(case: str) -> None:
    mine, background = CASES[case]
    random, chosen = (
        sum(left_over(kind.on_data(mine, background, torch_rng(seed)), background) for seed in range(10))
        for kind in (RepeatAug(alpha=2), CounterAug(alpha=2, repeats=4, candidates=60, choice="herding"))
    )
    assert chosen < 0.95 * random


def test_sampling_cancels_the_deviation_on_average_and_not_each_time() -> None:
    mine, background = CASES["pictures"]
    background = {name: column[:400] for name, column in background.items()}
    sampled = CounterAug(alpha=4, candidates=300)
    kinds = {"random": RandAug(alpha=4), "sampled": sampled, "herded": sampled.model_copy(update={"choice": "herding"})}
    means, spread = {}, {}
    for name, kind in kinds.items():
        left = torch.stack([
            describe(kind.on_data(mine, background, torch_rng(seed)), background, "both")[0].mean(0)
            for seed in range(8)
        ])  # fmt: skip
        means[name], spread[name] = float(left.mean(0).norm()), float(left.std(0).norm())
    assert means["sampled"] < 0.75 * means["random"]
    assert spread["herded"] < 0.75 * spread["sampled"]


def test_tilted_weights_shift_the_mean_against_the_deviation() -> None:
    candidates = torch.randn(4000, 3, generator=torch_rng(0))
    candidates -= candidates.mean(0)
    wanted = torch.tensor([0.3, -0.2, 0.0])
    drawn = torch.cat([candidates[sample_tilted(wanted, candidates, 50, torch_rng(seed))] for seed in range(200)])
    assert float((drawn.mean(0) + wanted).abs().max()) < 0.04
    assert len(sample_tilted(wanted, candidates[:5], 7, torch_rng(0))) == 7, "more than there are come again"
    assert len(set(sample_tilted(wanted, candidates[:5], 5, torch_rng(0)).tolist())) == 5


def test_each_step_takes_the_candidate_that_leaves_least() -> None:
    candidates = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, -1.0], [0.0, 3.0]])
    assert counterweights(torch.tensor([2.0, 1.0]), candidates, 2).tolist() == [1, 2]


def test_no_candidate_comes_twice_before_all_have_come() -> None:
    chosen = counterweights(torch.tensor([5.0]), torch.tensor([[-1.0], [1.0], [0.5]]), 7).tolist()
    assert sorted(chosen[:3]) == sorted(chosen[3:6]) == [0, 1, 2]


@pytest.mark.parametrize("features", ["targets", "inputs"])
def test_one_kind_of_features_balances_that_kind(features: str) -> None:
    mine, background = CASES["pictures"]
    kept = CounterAug(alpha=2, features=features, choice="herding").on_data(mine, background, torch_rng(0))  # type: ignore[arg-type]
    before, after = (float(describe(e, background, features)[0].mean(0).norm()) for e in (mine, kept))
    assert after < before / 3


def test_the_background_of_another_type_and_small_pools_do() -> None:
    mine, background = CASES["pictures"]
    small = {name: column[:3] for name, column in background.items()}
    kept = CounterAug(alpha=1).on_data({**mine, "x": mine["x"].double()}, small, torch_rng(0))
    assert len(kept["y"]) == 60
    assert kept["x"].dtype == torch.float64


def test_targets_to_be_ignored_count_no_more_than_padding() -> None:
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(0, 9, (40, 5), generator=generator)
    unknown = torch.where(words == 0, IGNORED, words)
    user, pool = ({"x": words[part], "y": words[part]} for part in (slice(0, 10), slice(10, None)))
    ignoring, others = ({**part, "y": unknown[rows]} for part, rows in ((user, slice(0, 10)), (pool, slice(10, None))))
    for expected, described in zip(describe(user, pool, "targets"), describe(ignoring, others, "targets"), strict=True):
        assert torch.equal(expected, described)
