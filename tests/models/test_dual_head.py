"""The Secret Polarization Network: its loss, its bounds, and what it shares with the public network."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polarization import polarization
from torch import Tensor
from torch.func import functional_call

from fedprint.data.examples import CODE, CODE_WEIGHT
from fedprint.defences.secret_head import SecretHead, target_codes
from fedprint.models.components import AlexNet, DlNet, MobileNet, NextWordLstm, SmallCnn, StarLstm, Vgg16
from fedprint.models.dual_head import SECRET, DualHead, polarization_loss
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import Examples, FedprintError

BACKBONES = (SmallCnn(channels=(4, 8), hidden=16), DlNet(), MobileNet(width=0.25, normalisation="frozen"))
CLASSES, BITS = 5, 16


def dual(config: SmallCnn | DlNet | MobileNet | AlexNet | Vgg16 = BACKBONES[1], multi_label: bool = False) -> DualHead:
    net = DualHead(build_network(config, (3, 16, 16), CLASSES, multi_label), bits=BITS)
    net.reset(torch_rng(0))
    return net.double()


def batch(multi_label: bool = False, alpha2: float = 0.3, n: int = 6) -> Examples:
    rng = torch_rng(1)
    y = (torch.rand(n, CLASSES, generator=rng) < 0.4).double() if multi_label else torch.arange(n) % CLASSES
    x = torch.rand(n, 3, 16, 16, generator=rng).double()
    return SecretHead(bits=BITS, alpha2=alpha2).on_data({"x": x, "y": y}, {}, torch_rng(2))


def params_of(net: DualHead) -> dict[str, Tensor]:
    public = {name: p.detach().clone() for name, p in net.public_parameters().items()}
    return public | net.draw_private(torch_rng(3))


def hamming(a: Tensor, b: Tensor) -> Tensor:
    return (a != b).double().sum(-1)


def signs(v: Tensor) -> Tensor:
    return torch.where(v > 0, 1.0, -1.0).double()


# ---- the loss ------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 128), st.floats(1, 5), st.floats(1e-3, 1e3))
def test_the_hamming_distance_never_exceeds_the_polarization_loss(
    seed: int, bits: int, margin: float, spread: float
) -> None:
    """Lemma 5.5; with a margin below 1 it fails, see the next test."""
    rng = torch_rng(seed)
    v = spread * torch.randn(20, bits, generator=rng).double()
    v[torch.rand(v.shape, generator=rng) < 0.05] = 0
    t = signs(torch.randn(20, bits, generator=rng))
    assert bool((hamming(signs(v), t) <= polarization_loss(v, t, margin) + 1e-9).all())


def test_a_margin_below_one_breaks_the_bound() -> None:
    v, t = torch.tensor([[-0.01]]), torch.tensor([[1.0]])
    assert float(hamming(signs(v), t.double())) > float(polarization_loss(v, t, 0.5))


def test_the_loss_is_the_hinge_of_the_examples_own_code() -> None:
    v = torch.tensor([[2.0, 0.25, -3.0], [0.0, 1.0, 1.0]])
    t = torch.tensor([[1.0, 1.0, 1.0], [-1.0, 1.0, -1.0]])
    assert torch.allclose(polarization_loss(v, t), torch.tensor([0.75 + 4.0, 1.0 + 2.0]))
    assert torch.allclose(polarization_loss(v, t, 2.0), torch.tensor([1.75 + 5.0, 2.0 + 1.0 + 3.0]))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 5), st.floats(0.1, 3))
def test_intra_and_inter_class_hamming_bounds(seed: int, classes: int, spread: float) -> None:
    """Propositions 5.1, 5.2 and 5.3 of the appendix, on random outputs and codes."""
    rng, bits = torch_rng(seed), 12
    sizes = torch.randint(1, 7, (classes,), generator=rng).tolist()
    codes = signs(torch.randn(classes, bits, generator=rng))
    v = [spread * torch.randn(n, bits, generator=rng).double() + c for n, c in zip(sizes, codes, strict=True)]
    mean_loss = [float(polarization_loss(vx, cx.expand_as(vx)).mean()) for vx, cx in zip(v, codes, strict=True)]
    pair = [[float(hamming(signs(a)[:, None], signs(b)[None]).mean()) for b in v] for a in v]
    apart = sum(float(hamming(a, b)) for i, a in enumerate(codes) for j, b in enumerate(codes) if i != j)
    inter = sum(pair[i][j] for i in range(classes) for j in range(classes) if i != j)
    intra = [pair[i][i] for i in range(classes)]
    assert all(intra[i] <= 2 * mean_loss[i] + 1e-9 for i in range(classes))
    assert apart - inter <= 2 * (classes - 1) * sum(mean_loss) + 1e-9
    assert sum(intra) - inter <= 2 * classes * sum(mean_loss) - apart + 1e-9


# ---- the network ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", BACKBONES)
def test_the_public_network_keeps_its_names_values_and_predictions(config: SmallCnn | DlNet | MobileNet) -> None:
    net, plain = dual(config), build_network(config, (3, 16, 16), CLASSES, False)
    plain.reset(torch_rng(0))
    plain = plain.double()
    expected = dict(plain.named_parameters())
    assert list(net.public_parameters()) == list(expected)
    assert all(torch.equal(p, expected[name]) for name, p in net.public_parameters().items())
    assert [name for name, _ in net.named_parameters()][len(expected) :] == [f"{SECRET}.weight", f"{SECRET}.bias"]
    data = batch()
    assert torch.equal(net.per_example_utility(data), plain.per_example_utility(data))
    without = {"x": data["x"], "y": data["y"]}
    assert torch.equal(net(without), plain(without))


@pytest.mark.parametrize("multi_label", [False, True])
def test_the_loss_is_the_weighted_sum_of_both(multi_label: bool) -> None:
    net, data = dual(multi_label=multi_label), batch(multi_label)
    params = params_of(net)
    plain = functional_call(net, params, ({"x": data["x"], "y": data["y"]},))
    h = functional_call(net.public, {n: p for n, p in params.items() if SECRET not in n}, ({**data},))
    assert torch.equal(plain, h)
    v = net.public.features(data["x"]) @ params[f"{SECRET}.weight"].T + params[f"{SECRET}.bias"]
    expected = plain + 0.3 * (1 - v * data[CODE]).clamp(min=0).sum(1)
    assert torch.allclose(functional_call(net, params, (data,)), expected, rtol=1e-12)
    assert not torch.allclose(expected, plain)


def test_a_copy_has_layers_of_its_own() -> None:
    net = dual()
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.public.head.weight.zero_()
    assert not other.get_parameter("head.weight").any()
    assert net.get_parameter("head.weight").any()


def test_clients_draw_heads_of_their_own_and_none_is_in_the_global_model() -> None:
    net = dual()
    a, b = (net.draw_private(torch_rng(0, "secret-head", device)) for device in ("a", "b"))
    assert not torch.equal(a[f"{SECRET}.weight"], b[f"{SECRET}.weight"])
    assert not any(net.get_parameter(name).any() for name in a)


def test_the_secret_head_starts_by_the_rule_of_the_public_network() -> None:
    for config, bound in ((DlNet(bound=0.3), 0.3), (DlNet(bound=None), 768**-0.5)):
        net = DualHead(build_network(config, (3, 32, 32), CLASSES, False), bits=BITS)
        weight = net.draw_private(torch_rng(0))[f"{SECRET}.weight"]
        assert 0.99 * bound < float(weight.abs().max()) <= bound


@pytest.mark.parametrize("config", [NextWordLstm(), StarLstm()])
def test_models_without_classes_are_refused_with_the_reason(config: NextWordLstm | StarLstm) -> None:
    with pytest.raises(FedprintError, match=r"defences.spn: .* has no classes that could have a code each"):
        DualHead(build_network(config, (7,), 30, False), bits=8)


# ---- codes ---------------------------------------------------------------------------------------------------------


def test_codes_are_one_per_class_and_the_devices_own() -> None:
    y = torch.tensor([0, 3, 3, 1, 0])
    codes = target_codes(y, 64, torch_rng(0, "a"))
    assert set(codes.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(codes[0], codes[4]) and torch.equal(codes[1], codes[2])
    assert not torch.equal(codes[0], codes[1])
    assert not torch.equal(codes, target_codes(y, 64, torch_rng(0, "b")))


def test_a_multi_label_target_is_the_sum_of_the_codes() -> None:
    hot = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 0, 0]])
    codes = target_codes(hot, 32, torch_rng(0))
    assert torch.equal(codes[3], codes[0] + codes[2])
    assert float(codes[4].abs().max()) == 0
    assert set(codes[:3].unique().tolist()) == {-1.0, 1.0}


# ---- gradients -----------------------------------------------------------------------------------------------------


def test_ratio_and_cosine_equal_those_of_gradients_taken_apart() -> None:
    net, data = dual(), batch()
    params = {name: p.requires_grad_() for name, p in params_of(net).items()}
    by_layer = polarization(net, params, data)
    ce = functional_call(net, params, ({"x": data["x"], "y": data["y"]},)).mean()
    both = functional_call(net, params, (data,)).mean()
    weight = params["conv2.weight"]
    b = torch.autograd.grad(ce, weight, retain_graph=True)[0].flatten()
    e = torch.autograd.grad(both, weight)[0].flatten() - b
    assert by_layer["conv2.weight"].ratio == pytest.approx(float(b.norm() / e.norm()), rel=1e-9)
    assert by_layer["conv2.weight"].cosine == pytest.approx(float(b @ e / b.norm() / e.norm()), rel=1e-6)


def test_the_public_head_is_not_perturbed_and_more_weight_means_a_smaller_ratio() -> None:
    net = dual()
    weak, strong = (polarization(net, params_of(net), batch(alpha2=alpha2)) for alpha2 in (0.01, 0.1))
    assert math.isinf(weak["head.weight"].ratio) and math.isnan(weak["head.weight"].cosine)
    assert weak[""].ratio == pytest.approx(10 * strong[""].ratio, rel=1e-9)
    assert weak["conv1.bias"].cosine == pytest.approx(strong["conv1.bias"].cosine, rel=1e-9)
    assert set(weak) == {"", *net.public_parameters()}


def test_the_weight_is_a_column_so_devices_may_differ() -> None:
    settled = SecretHead(alpha2=(0.0, 0.5)).settled(torch_rng(0))
    assert settled.alpha2 in (0.0, 0.5) and settled.varying == ()
    data = settled.on_data({"x": torch.rand(3, 2), "y": torch.arange(3)}, {}, torch_rng(0))
    assert torch.equal(data[CODE_WEIGHT], torch.full((3,), float(settled.alpha2)))  # type: ignore[arg-type]
