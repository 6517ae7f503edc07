"""The spn paper's networks: published sizes, starts, and the contract of a federated model."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedprint.component import Component
from fedprint.models.base import FedModule
from fedprint.models.components import AlexNet, DlNet, FullyConnected, Vgg16
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import Examples, FedprintError

NETWORKS = (
    DlNet(),
    DlNet(activation="tanh"),
    AlexNet(),
    Vgg16(),
    FullyConnected(),
    FullyConnected(activation="sigmoid"),
)


def built(config: Component, shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10) -> FedModule:
    assert isinstance(config, DlNet | AlexNet | Vgg16 | FullyConnected)
    net = build_network(config, shape, classes, False)
    net.reset(torch_rng(0, config.name))
    return net


def count(net: FedModule, layer: str = "") -> int:
    return sum(p.numel() for name, p in net.named_parameters() if name.startswith(layer))


def batch(n: int = 3) -> Examples:
    rng = torch_rng(1)
    return {"x": torch.rand(n, 3, 32, 32, generator=rng), "y": torch.randint(10, (n,), generator=rng)}


def parameters(net: FedModule) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in net.named_parameters()}


@pytest.mark.parametrize(
    ("shape", "classes", "inputs", "total"),
    [((3, 32, 32), 10, 768, 19_438), ((3, 32, 32), 100, 768, 88_648), ((1, 28, 28), 10, 588, 17_038)],
)
def test_dlnet_has_the_published_layers(shape: tuple[int, int, int], classes: int, inputs: int, total: int) -> None:
    net = built(DlNet(), shape, classes)
    assert parameters(net)["head.weight"].shape == (classes, inputs)
    assert [tuple(parameters(net)[f"conv{i}.weight"].shape) for i in (1, 4)] == [(12, shape[0], 5, 5), (12, 12, 5, 5)]
    assert count(net) == total


def test_alexnet_has_the_published_layers() -> None:
    net = built(AlexNet())
    assert [count(net, f"conv{i}.") for i in range(1, 6)] == [4_864, 307_392, 663_936, 884_992, 590_080]
    assert parameters(net)["fc1.weight"].shape == (256, 4096)
    assert count(net) == 3_502_666


def test_vgg16_has_thirteen_convolutions_and_five_stages() -> None:
    net = built(Vgg16())
    weights = [p for name, p in parameters(net).items() if name.startswith("conv") and name.endswith("weight")]
    assert len(weights) == 13
    assert sum(w.numel() for w in weights) == 14_710_464
    assert parameters(net)["fc1.weight"].shape == (256, 512)
    assert count(net) == 14_710_464 + 2 * 4_224 + 512 * 256 + 256 + 2_570


@pytest.mark.parametrize("config", [AlexNet(), Vgg16()])
def test_images_too_small_for_the_pools_are_refused(config: Component) -> None:
    side = 7 if config.name == "alexnet" else 28
    with pytest.raises(FedprintError, match=f"needs (8|32) x (8|32) pixels, the images have {side} x {side}"):
        built(config, (1, side, side))


def test_dlnet_starts_uniform_in_the_published_range_biases_too() -> None:
    net = built(DlNet())
    for name, tensor in parameters(net).items():
        if tensor.numel() > 1000:
            assert 0.299 < float(tensor.abs().max()) <= 0.3, name
            assert float(tensor.std()) == pytest.approx(0.3 / 3**0.5, rel=0.05)
        assert tensor.abs().max() > 0, name
    assert float(parameters(built(DlNet(bound=None)))["conv1.bias"].abs().max()) == 0


@pytest.mark.parametrize(("config", "layer"), [(AlexNet(), "fc1"), (Vgg16(), "conv5_3")])
def test_the_deep_networks_start_from_kaimings_uniform_rule(config: Component, layer: str) -> None:
    weight = parameters(built(config))[f"{layer}.weight"]
    bound = (6 / weight[0].numel()) ** 0.5
    assert 0.99 * bound < float(weight.abs().max()) <= bound


@pytest.mark.parametrize("config", [AlexNet(), Vgg16()])
def test_the_deep_networks_start_near_the_loss_of_a_guess(config: Component) -> None:
    assert float(built(config)(batch(8)).mean()) < math.log(10) + 0.3


@pytest.mark.parametrize("config", NETWORKS)
def test_losses_are_per_example_and_repeatable(config: Component) -> None:
    net, data = built(config), batch()
    losses = net(data)
    alone = torch.cat([net({c: data[c][i : i + 1] for c in data}) for i in range(3)])
    assert torch.allclose(losses, alone, rtol=1e-3)
    assert len(set(losses.tolist())) == 3
    assert torch.equal(net.eval()(data), net.train()(data))


@pytest.mark.parametrize("config", NETWORKS[:2])
def test_stacked_gradients_equal_a_loop(config: Component) -> None:
    nets, data = [built(config).double() for _ in range(2)], batch(2)
    data = {"x": data["x"].double(), "y": data["y"]}
    with torch.no_grad():
        for p in nets[1].parameters():
            p.mul_(0.5)

    def loss(params: dict[str, Tensor]) -> Tensor:
        return functional_call(nets[0], params, (data,)).mean()

    stacked = {name: torch.stack([parameters(net)[name] for net in nets]) for name in parameters(nets[0])}
    together = vmap(grad(loss))(stacked)
    for k, net in enumerate(nets):
        alone = torch.autograd.grad(net(data).mean(), list(net.parameters()))
        for name, expected in zip(together, alone, strict=True):
            assert torch.allclose(together[name][k], expected, rtol=1e-9)


def test_dlnet_equals_its_formula() -> None:
    net, x = built(DlNet()), batch()["x"]
    p = parameters(net)
    h = x
    for i, stride in enumerate((2, 2, 1, 1), 1):
        h = torch.sigmoid(functional.conv2d(h, p[f"conv{i}.weight"], p[f"conv{i}.bias"], stride, 2))
    assert torch.allclose(net.scores(x), functional.linear(h.flatten(1), p["head.weight"], p["head.bias"]))
