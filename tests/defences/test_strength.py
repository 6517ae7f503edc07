"""Strengths: what is neutral, and a distribution of which each device draws its own."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from pydantic import ValidationError
from scipy import stats

from fedprint.defences.counterweight import CounterAug
from fedprint.defences.on_data import BkgRepl, MmAug, RandAug, RepeatAug
from fedprint.defences.on_update import DpFedAvg, DpLocal, Laplace, Noise, Quantise, Sign, TopK
from fedprint.defences.points import defend_update, settle
from fedprint.defences.secret_head import SecretHead
from fedprint.defences.strength import Defence, single
from fedprint.rng import torch_rng
from fedprint.types import DataDefence, FedprintError

DISTRIBUTIONS: list[Defence] = [
    BkgRepl(alpha=(0, 0.5, 1)), RandAug(alpha=(0, 0.5, 2)), MmAug(alpha=(0, 0.5, 2)), CounterAug(alpha=(0, 0.5, 2)),
    RepeatAug(alpha=(0, 0.5, 2)), Noise(sigma=(0, 0.1, 1)), DpLocal(z=(0, 0.1, 1)), TopK(share=(0.05, 0.3, 1)),
    Laplace(sigma=(0, 0.1, 1)), SecretHead(alpha2=(0, 0.1, 0.5)), Quantise(bits=(1, 4, 32)),
    Sign(enabled=(True, False)),
]  # fmt: skip
DEVICES = [f"user-{i}-{role}" for i in range(300) for role in ("prior", "anonymous")]


@pytest.mark.parametrize("defence", DISTRIBUTIONS)
def test_every_device_draws_one_of_the_strengths_all_equally_likely(defence: Defence) -> None:
    (field,) = defence.varying
    drawn = Counter(getattr(settle([defence], device, 0)[0], field) for device in DEVICES)
    assert set(drawn) == set(getattr(defence, field))
    assert stats.chisquare(list(drawn.values())).pvalue > 1e-4


@pytest.mark.parametrize("defence", DISTRIBUTIONS)
def test_a_settled_defence_varies_no_more_and_keeps_its_other_settings(defence: Defence) -> None:
    (settled,) = settle([defence], "user-3-prior", 0)
    assert settled.varying == () and type(settled) is type(defence)
    assert settled.settled(torch_rng(5)) is settled
    others = {name for name in type(defence).model_fields if name not in defence.varying}
    assert all(getattr(settled, name) == getattr(defence, name) for name in others)


@pytest.mark.parametrize("defence", DISTRIBUTIONS)
def test_a_distribution_refuses_to_act(defence: Defence) -> None:
    examples = {"x": torch.zeros(4, 2), "y": torch.zeros(4, dtype=torch.int64)}
    with pytest.raises(FedprintError, match=r"is a distribution over devices; call settled"):
        if isinstance(defence, DataDefence):
            defence.on_data(examples, examples, torch_rng(0))
        else:
            defence.on_device({"w": torch.ones(3)}, torch_rng(0))  # type: ignore[attr-defined]


def test_devices_positions_and_seeds_draw_apart_and_the_same_again() -> None:
    twice = [Noise(sigma=(0, 1)), Noise(sigma=(0, 1))]
    draws = [settle(twice, device, 0) for device in DEVICES]
    assert draws == [settle(twice, device, 0) for device in DEVICES]
    assert draws != [settle(twice, device, 1) for device in DEVICES]
    together = sum(a == b for a, b in draws) / len(draws)
    assert 0.4 < together < 0.6, "two defences of a list are drawn independently"


@pytest.mark.parametrize(
    ("mixed", "plain"),
    [(Quantise(bits=(1, 32)), [Quantise(bits=1), Quantise(bits=32)]), (Sign(enabled=(True, False)), [Sign(), None])],
)
def test_bits_and_signs_are_what_the_device_drew(mixed: Defence, plain: list[Defence | None]) -> None:
    update = {"w": torch.randn(50, generator=torch_rng(0))}
    seen = set()
    for device in DEVICES[:20]:
        sent = defend_update(update, settle([mixed], device, 0), 0, 3, device)["w"]
        options = [defend_update(update, [p] if p else [], 0, 3, device)["w"] for p in plain]
        matching = [i for i, option in enumerate(options) if torch.equal(sent, option)]
        assert len(matching) == 1
        seen.update(matching)
    assert seen == {0, 1}


def test_a_yaml_list_is_a_distribution_and_its_entries_are_checked() -> None:
    assert Quantise.model_validate({"name": "quantise", "bits": [4, 8]}).varying == ("bits",)
    assert Sign.model_validate({"name": "sign", "enabled": [True, False]}).enabled == (True, False)
    for bits in ([], [4, 33], [0]):
        with pytest.raises(ValidationError):
            Quantise.model_validate({"name": "quantise", "bits": bits})


def test_a_single_number_is_a_strength() -> None:
    assert single(0.5) == 0.5
    defence = Noise(sigma=0.5)
    assert settle([defence], "d", 0) == (defence,) and defence.varying == ()


@pytest.mark.parametrize(
    ("defence", "protects"),
    [(BkgRepl(alpha=0), False), (BkgRepl(alpha=0.1), True), (RandAug(alpha=0), False), (RandAug(alpha=2), True),
     (MmAug(alpha=0), False), (MmAug(alpha=1), True), (Noise(sigma=0), False), (Noise(sigma=1e-9), True),
     (TopK(share=1), False), (TopK(share=0.99), True), (Quantise(bits=32), False), (Quantise(bits=31), True),
     (Sign(enabled=False), False), (Sign(), True), (DpLocal(z=0), True), (DpFedAvg(z=0), True)],
)  # fmt: skip
def test_a_defence_says_whether_it_protects(defence: Defence, protects: bool) -> None:
    """Clipping alone does something."""
    assert defence.protects is protects
