"""Contracts of every federated model, and each network beside an independent reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedprint.models.base import FedModule, initialise, quiet_trainer
from fedprint.models.batches import ShuffledBatches
from fedprint.models.components import NextWordLstm, SmallCnn
from fedprint.models.kernels.next_word import LinearCrossEntropy
from fedprint.models.lstm import Lstm
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import Examples

KINDS = ("grey", "rgb", "multi-label", "centred", "no-hidden", "lm")
CLASSES, VOCABULARY, LENGTH = 5, 30, 7


def model(kind: str, seed: int = 0) -> FedModule:
    if kind == "lm":
        net = build_network(NextWordLstm(embedding=8, hidden=6), (LENGTH,), VOCABULARY, False)
    else:
        config = SmallCnn(channels=(4, 8), hidden=0 if kind == "no-hidden" else 16, centred=kind == "centred")
        net = build_network(config, (3 if kind == "rgb" else 1, 13, 10), CLASSES, kind == "multi-label")
    initialise(net, torch.Generator().manual_seed(seed), net.initial_gain)
    return net.double()


def batch(kind: str, n: int = 6, seed: int = 0) -> Examples:
    rng = torch.Generator().manual_seed(seed)
    if kind == "lm":
        y = torch.randint(VOCABULARY, (n, LENGTH), generator=rng)
        y[:, -2:] = -100
        return {"x": torch.randint(VOCABULARY, (n, LENGTH), generator=rng), "y": y}
    x = torch.rand(n, 3 if kind == "rgb" else 1, 13, 10, generator=rng, dtype=torch.float64)
    if kind == "multi-label":
        return {"x": x, "y": (torch.rand(n, CLASSES, generator=rng) < 0.3).double()}
    return {"x": x, "y": torch.randint(CLASSES, (n,), generator=rng)}


def parameters(net: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in net.named_parameters()}


# ---- the contract --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_example_has_a_loss_of_its_own(kind: str) -> None:
    net, data = model(kind), batch(kind)
    losses = net(data)
    alone = torch.cat([net({c: data[c][i : i + 1] for c in data}) for i in range(6)])
    assert losses.shape == (6,)
    assert torch.allclose(losses, alone, rtol=1e-12)
    assert len(set(losses.tolist())) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_random_and_no_state_is_kept(kind: str) -> None:
    net, data = model(kind).train(), batch(kind)
    first = net(data)
    torch.manual_seed(3)
    assert torch.equal(net(data), first)
    assert torch.equal(net.eval()(data), first)
    assert list(net.buffers()) == []
    assert list(net.state_dict()) == [name for name, _ in net.named_parameters()]


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_over_stacked_models_equals_a_loop(kind: str) -> None:
    nets = [model(kind, seed) for seed in range(3)]
    data = [batch(kind, seed=seed) for seed in range(3)]
    stackable = nets[0].for_vmap()

    def loss(params: dict[str, Tensor], examples: Examples) -> Tensor:
        return functional_call(stackable, params, (examples,)).mean()

    stacked = {name: torch.stack([parameters(net)[name] for net in nets]) for name in parameters(nets[0])}
    columns = {c: torch.stack([d[c] for d in data]) for c in ("x", "y")}
    gradients = vmap(grad(loss))(stacked, columns)
    for k, (net, examples) in enumerate(zip(nets, data, strict=True)):
        expected = torch.autograd.grad(net(examples).mean(), list(net.parameters()))
        for name, gradient in zip(gradients, expected, strict=True):
            assert torch.allclose(gradients[name][k], gradient, atol=1e-12, rtol=0), name
            assert float(gradient.abs().max()) > 1e-6, name


@pytest.mark.parametrize("kind", KINDS)
def test_initial_parameters_depend_on_the_seed_only(kind: str) -> None:
    torch.manual_seed(1)
    first = parameters(model(kind))
    torch.manual_seed(2)
    again, other = parameters(model(kind)), parameters(model(kind, seed=1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(torch.equal(first[n], other[n]) == n.endswith("bias") for n in first), "biases start at zero"


@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_initial_weights_fill_their_range_and_embeddings_are_normal(gain: float) -> None:
    net = nn.Sequential(nn.Linear(100, 400), nn.Conv2d(4, 50, 5), nn.Embedding(500, 40))
    initialise(net, torch_rng(0), gain)
    for weight, fan_in in ((net[0].weight.detach(), 100), (net[1].weight.detach(), 100)):
        bound = gain / fan_in**0.5
        assert 0.99 * bound < float(weight.abs().max()) <= bound
        assert float(weight.mean()) == pytest.approx(0, abs=0.02 * bound)
        assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.03)
    assert float(net[2].weight.detach().std()) == pytest.approx(1, rel=0.03)


# ---- images --------------------------------------------------------------------------------------------------------


def test_the_cnn_equals_torchs_layers_in_the_usual_order() -> None:
    """The network pools before the ReLU; the textbook pools after it."""
    net, data = model("grey"), batch("grey")
    p = parameters(net)
    h = functional.max_pool2d(
        functional.relu(functional.conv2d(data["x"], p["conv1.weight"], p["conv1.bias"], 1, 2)), 2
    )
    h = functional.max_pool2d(functional.relu(functional.conv2d(h, p["conv2.weight"], p["conv2.bias"], 1, 2)), 2)
    h = functional.relu(functional.linear(h.flatten(1), p["fc1.weight"], p["fc1.bias"]))
    assert torch.allclose(net.scores(data["x"]), functional.linear(h, p["head.weight"], p["head.bias"]), rtol=1e-12)
    assert float(h.std()) > 0.01


def test_a_centred_model_sees_pixels_from_minus_one_to_one() -> None:
    plain, centred, x = model("grey"), model("centred"), batch("grey")["x"]
    plain.load_state_dict(centred.state_dict())
    assert torch.allclose(centred.scores(x), plain.scores(2 * x - 1), rtol=1e-12)
    assert not torch.allclose(centred.scores(x), plain.scores(x), rtol=1e-3)


def test_the_single_label_loss_is_minus_log_the_probability_of_the_label() -> None:
    net, data = model("grey"), batch("grey")
    probabilities = net.scores(data["x"]).softmax(1)
    assert torch.allclose(net(data), -probabilities[range(6), data["y"]].log(), rtol=1e-10)
    hits = net.per_example_utility(data)
    assert hits.tolist() == (probabilities.argmax(1) == data["y"]).double().tolist()


def test_the_multi_label_loss_is_the_mean_over_classes() -> None:
    net, data = model("multi-label"), batch("multi-label")
    p = net.scores(data["x"]).sigmoid()
    expected = -(data["y"] * p.log() + (1 - data["y"]) * (1 - p).log()).mean(1)
    assert torch.allclose(net(data), expected, rtol=1e-10)
    assert torch.equal(net.per_example_utility(data), net.scores(data["x"]))


# ---- text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("for_vmap", [False, True])
def test_the_lstm_equals_torchs_lstm(for_vmap: bool) -> None:
    ours, reference = Lstm(8, 6).double(), nn.LSTM(8, 6, batch_first=True).double()
    ours.for_vmap = for_vmap
    initialise(ours, torch_rng(0), gain=2.0)
    with torch.no_grad():
        ours.bias.uniform_(-1, 1, generator=torch_rng(1))
        reference.weight_ih_l0.copy_(ours.weight_ih)
        reference.weight_hh_l0.copy_(ours.weight_hh)
        reference.bias_ih_l0.copy_(ours.bias)
        reference.bias_hh_l0.zero_()
    x = torch.randn(3, 11, 8, generator=torch_rng(2), dtype=torch.float64)
    assert torch.allclose(ours(x), reference(x)[0], atol=1e-12, rtol=0)
    gradients = torch.autograd.grad(ours(x).square().sum(), [ours.weight_ih, ours.weight_hh, ours.bias])
    expected = torch.autograd.grad(
        reference(x)[0].square().sum(), [reference.weight_ih_l0, reference.weight_hh_l0, reference.bias_ih_l0]
    )
    assert all(torch.allclose(a, b, atol=1e-10, rtol=0) for a, b in zip(gradients, expected, strict=True))
    assert float(ours(x).detach().abs().mean()) > 0.05


def test_a_word_is_predicted_from_those_before_it_only() -> None:
    net, x = model("lm"), batch("lm")["x"].clone()
    before = net.scores(x)
    x[:, 4] = (x[:, 4] + 1) % VOCABULARY
    after = net.scores(x)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_the_sentence_loss_is_the_mean_over_known_words() -> None:
    net, data = model("lm"), batch("lm")
    p = net.scores(data["x"]).log_softmax(-1)
    expected = [-sum(float(p[i, s, data["y"][i, s]].detach()) for s in range(5)) / 5 for i in range(6)]
    assert net(data).tolist() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_the_output_layer_with_its_loss_equals_torchs(scale: float) -> None:
    """Also where the probability of a target underflows."""
    rng = torch_rng(0)
    states = (scale * torch.randn(9, 6, generator=rng)).requires_grad_()
    weight = torch.randn(VOCABULARY, 6, generator=rng, requires_grad=True)
    bias, y = torch.randn(VOCABULARY, generator=rng, requires_grad=True), torch.arange(9)
    inputs, by_loss = (states, weight, bias), torch.rand(9, generator=rng)
    losses: Tensor = LinearCrossEntropy.apply(*inputs, y)  # type: ignore[no-untyped-call]
    expected = functional.cross_entropy(functional.linear(*inputs), y, reduction="none")
    torch.testing.assert_close(losses, expected)
    gradients = torch.autograd.grad(losses, inputs, by_loss)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, inputs, by_loss))


def test_a_sentence_without_known_words_costs_nothing_and_teaches_nothing() -> None:
    net, data = model("lm"), batch("lm", 1)
    silent = {"x": data["x"], "y": torch.full_like(data["y"], -100)}
    assert net(silent).tolist() == [0.0]
    gradients = torch.autograd.grad(net(silent).mean(), list(net.parameters()))
    assert all(bool((g == 0).all()) for g in gradients)


def test_top_5_hits_count_known_words_only() -> None:
    net, data = model("lm"), batch("lm")
    hits, scores = net.per_example_utility(data), net.scores(data["x"])
    assert hits[:, -2:].isnan().all()
    better = (scores > scores.gather(2, data["y"].clamp(min=0).unsqueeze(-1))).sum(-1)
    assert hits[:, :5].tolist() == (better[:, :5] < 5).double().tolist()
    assert 0 < float(hits[:, :5].mean()) < 1


# ---- the centralised baseline --------------------------------------------------------------------------------------


def test_shuffled_batches_hold_every_example_once_an_epoch_in_a_new_order() -> None:
    columns = {"x": torch.arange(10.0), "y": torch.arange(10)}
    source = ShuffledBatches(columns, 4, torch_rng(0))
    first, second = list(source), list(source)
    assert [len(b["y"]) for b in first] == [4, 4, 2]
    orders = [torch.cat([b["y"] for b in epoch]).tolist() for epoch in (first, second)]
    assert [sorted(order) for order in orders] == [list(range(10))] * 2
    assert orders[0] != orders[1]
    assert all(torch.equal(b["x"].long(), b["y"]) for b in first)


def test_central_training_is_plain_sgd_on_the_shuffled_batches() -> None:
    data = batch("grey", 10)
    net, by_hand = model("grey"), model("grey")
    net.central_lr = 0.2
    quiet_trainer(2).fit(net, ShuffledBatches(data, 4, torch_rng(0)).loader())
    sgd, source = torch.optim.SGD(by_hand.parameters(), lr=0.2), ShuffledBatches(data, 4, torch_rng(0))
    for examples in [*source, *source]:
        sgd.zero_grad()
        by_hand(examples).mean().backward()
        sgd.step()
    trained, expected, start = parameters(net), parameters(by_hand), parameters(model("grey"))
    assert all(torch.allclose(trained[name], expected[name], atol=1e-12, rtol=0) for name in trained)
    assert all(float((trained[name] - start[name]).abs().max()) > 1e-4 for name in trained)


def test_a_copy_for_vmap_changes_how_the_lstm_runs_and_nothing_else() -> None:
    net = build_network(NextWordLstm(embedding=8, hidden=6), (7,), 30, False)
    initialise(net, torch_rng(0), net.initial_gain)
    other = net.for_vmap()
    assert other.lstm.for_vmap is True and net.lstm.for_vmap is False  # type: ignore[union-attr]
    x = torch.randint(30, (4, 7), generator=torch_rng(1))
    assert torch.allclose(net.scores(x), other.scores(x), atol=1e-5)
