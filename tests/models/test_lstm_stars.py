"""The star regressor: beside torch's own LSTM, blind to padding, and the same in every backend."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from fedprint import params as algebra
from fedprint.federation.backends import make_backend
from fedprint.models.base import FedModule, initialise
from fedprint.models.components import StarLstm
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, Examples, LocalTraining, Params

VOCABULARY, LENGTH = 30, 9
Loss = Literal["absolute", "squared", "huber"]


def model(loss: Loss = "huber", dtype: torch.dtype = torch.float64) -> FedModule:
    net = build_network(StarLstm(embedding=8, hidden=6, loss=loss), (LENGTH,), VOCABULARY, False)
    initialise(net, torch_rng(0), gain=2.0)
    return net.to(dtype)


def texts(n: int, seed: int = 0) -> Examples:
    """Texts of 1 to LENGTH tokens with ratings in [1, 5]; both extremes of length occur."""
    rng = torch_rng(seed)
    x = torch.randint(1, VOCABULARY, (n, LENGTH), generator=rng)
    lengths = torch.randint(1, LENGTH + 1, (n,), generator=rng)
    lengths[:2] = torch.tensor([LENGTH, 1])[:n]
    x[torch.arange(LENGTH) >= lengths[:, None]] = 0
    return {"x": x, "y": 1 + 4 * torch.rand(n, generator=rng)}


def test_the_prediction_reads_the_state_after_the_last_token() -> None:
    net, x = model(), texts(12)["x"]
    reference = nn.LSTM(8, 6, batch_first=True).double()
    p = dict(net.named_parameters())
    with torch.no_grad():
        reference.weight_ih_l0.copy_(p["lstm.weight_ih"])
        reference.weight_hh_l0.copy_(p["lstm.weight_hh"])
        reference.bias_ih_l0.copy_(p["lstm.bias"])
        reference.bias_hh_l0.zero_()
        reference.bias_hh_l0[6:12] = 1  # forget gate
    packed = pack_padded_sequence(p["embedding.weight"][x], (x > 0).sum(1), batch_first=True, enforce_sorted=False)
    last: Tensor = reference(packed)[1][0][0]
    expected = 3 + last @ p["head.weight"][0] + p["head.bias"]
    assert torch.allclose(net.scores(x), expected, atol=1e-12, rtol=0)
    assert float(net.scores(x).detach().std()) > 0.05


def test_padding_changes_neither_prediction_nor_gradient() -> None:
    net, short = model(), texts(6)
    longer = {"x": torch.cat([short["x"], torch.zeros(6, 4, dtype=torch.int64)], 1), "y": short["y"]}
    assert torch.allclose(net.scores(longer["x"]), net.scores(short["x"]), rtol=1e-12)
    pair = [torch.autograd.grad(net(data).mean(), list(net.parameters())) for data in (short, longer)]
    assert all(torch.allclose(a, b, atol=1e-14, rtol=0) for a, b in zip(*pair, strict=True))
    embedding = dict(zip(dict(net.named_parameters()), pair[0], strict=True))["embedding.weight"]
    assert not embedding[0].any() and embedding[1:].any()


@pytest.mark.parametrize("loss", ["absolute", "squared", "huber"])
def test_losses_are_in_stars_and_one_per_text(loss: Loss) -> None:
    net, data = model(loss), texts(40)
    error = (net.per_example_utility(data) - data["y"]).abs()
    expected = {
        "absolute": error,
        "squared": error.square(),
        "huber": torch.where(error < 1, error.square() / 2, error - 0.5),
    }[loss]
    assert bool((error > 1).any()) and bool((error < 1).any())
    assert net(data).shape == (40,)
    assert torch.allclose(net(data), expected, rtol=1e-12)


def test_it_starts_at_the_middle_of_the_scale() -> None:
    net = build_network(StarLstm(centre=2.5), (LENGTH,), VOCABULARY, False)
    initialise(net, torch_rng(0), net.initial_gain)
    assert net.per_example_utility(texts(50)).tolist() == pytest.approx([2.5] * 50, abs=0.3)
    assert [name.split(".")[0] for name, _ in net.named_parameters()] == ["embedding", *["lstm"] * 3, *["head"] * 2]
    assert tuple(net.get_parameter("embedding.weight").shape) == (VOCABULARY, 50)
    assert tuple(net.get_parameter("lstm.weight_hh").shape) == (4 * 128, 128)


@pytest.mark.parametrize("name", ["threaded:2", "vectorised:1", "vectorised:3", "vectorised:8"])
def test_backends_agree_in_float32(name: str) -> None:
    net = model(dtype=torch.float32)
    params: Params = {key: p.detach().clone() for key, p in net.named_parameters()}
    training = LocalTraining(epochs=2, batch_size=4, lr=0.5)
    reference, other = make_backend("sequential", net), make_backend(name, net)
    for t in range(3):
        jobs = [ClientJob(device_id=f"d{i}", examples=texts(n, i), seed=10 * t + i) for i, n in enumerate((5, 1, 9, 4))]
        expected, results = list(reference.run(jobs, params, training)), list(other.run(jobs, params, training))
        for e, f in zip(expected, results, strict=True):
            assert max(float((e.update[key] - f.update[key]).abs().max()) for key in e.update) < 1e-5
            assert min(float(tensor.abs().max()) for tensor in e.update.values()) > 1e-4
            assert f.loss == pytest.approx(e.loss, abs=1e-5)
        mean = algebra.weighted_mean([r.update for r in expected], [r.num_examples for r in expected])
        params = algebra.add(params, mean)


def test_it_learns_which_words_earn_stars() -> None:
    """A text's rating is that of its only telling word; the model must find it among the others."""
    x = torch.randint(10, VOCABULARY, (200, LENGTH), generator=torch_rng(3))
    good = torch.rand(200, generator=torch_rng(4)) < 0.5
    x[torch.arange(200), torch.randint(LENGTH, (200,), generator=torch_rng(5))] = torch.where(good, 1, 2)
    examples = {"x": x, "y": torch.where(good, 4.5, 1.5)}
    net = build_network(StarLstm(embedding=8, hidden=16), (LENGTH,), VOCABULARY, False)
    initialise(net, torch_rng(0), net.initial_gain)
    params: Params = {key: p.detach().clone() for key, p in net.named_parameters()}
    job = ClientJob(device_id="d", examples=examples, seed=0)
    training = LocalTraining(epochs=30, batch_size=10, lr=0.3)
    [result] = make_backend("sequential", net).run([job], params, training)
    net.load_state_dict(algebra.add(params, result.update))
    errors = (net.per_example_utility(examples) - examples["y"]).detach().abs()
    assert float(errors.mean()) < 0.3  # always 3: 1.5
