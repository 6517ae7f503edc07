"""The order of batches, and plain SGD on one client."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import federation_cases as cases
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedprint.defences.points import defend_data
from fedprint.defences.secret_head import SecretHead
from fedprint.federation.client import PADDING, batch_of, batch_schedule, blocks, train_client
from fedprint.models.base import initialise
from fedprint.models.components import NextWordLstm, StarLstm
from fedprint.models.dual_head import DualHead
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, ClientResult, Examples, LocalTraining

PLANS = st.builds(LocalTraining, epochs=st.integers(1, 3), batch_size=st.integers(1, 12), lr=st.just(0.1))


@given(n=st.integers(1, 40), training=PLANS, seed=st.integers(0, 2**63 - 1))
def test_every_epoch_is_each_example_once_in_full_batches_but_the_last(
    n: int, training: LocalTraining, seed: int
) -> None:
    steps = batch_schedule(n, training, seed)
    per_epoch = -(-n // training.batch_size)
    assert len(steps) == training.epochs * per_epoch
    for first in range(0, len(steps), per_epoch):
        epoch = steps[first : first + per_epoch]
        assert sorted(torch.cat(epoch).tolist()) == list(range(n))
        assert all(len(batch) == training.batch_size for batch in epoch[:-1])
        assert 1 <= len(epoch[-1]) <= training.batch_size


def test_the_schedule_is_its_seed_and_every_epoch_is_shuffled_anew() -> None:
    def order(seed: int) -> list[int]:
        return torch.cat(batch_schedule(30, LocalTraining(epochs=2, batch_size=7, lr=1), seed)).tolist()

    torch.manual_seed(1)
    first = order(5)
    torch.manual_seed(2)
    assert order(5) == first
    assert order(6) != first
    assert first[:30] != first[30:]
    assert first[:30] != sorted(first[:30])


CLIENTS = st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=30)


@given(clients=CLIENTS, size=st.integers(1, 8))
def test_a_block_has_few_rows_that_are_not_its_own(clients: list[tuple[int, bool]], size: int) -> None:
    jobs = [
        ClientJob(
            device_id=str(i), examples={"y": torch.zeros(n)}, seed=i, private={"a": torch.zeros(1)} if own else {}
        )
        for i, (n, own) in enumerate(clients)
    ]
    found = list(blocks(jobs, size, PADDING))
    assert sorted(i for block in found for i in block) == list(range(len(jobs)))
    for block in found:
        sizes = [clients[i][0] for i in block]
        assert len(block) <= size
        assert len({clients[i][1] for i in block}) == 1
        assert sum(sizes) >= (1 - PADDING) * len(sizes) * max(sizes) - 1e-9
        again = blocks([jobs[i] for i in block], size, PADDING)
        assert list(again) == [list(range(len(block)))]  # a worker cuts it no further


def test_clients_of_one_size_fill_their_blocks() -> None:
    jobs = [ClientJob(device_id=str(i), examples={"y": torch.zeros(9)}, seed=i) for i in range(10)]
    assert [len(block) for block in blocks(jobs, 4, PADDING)] == [4, 4, 2]
    ragged = [replace(job, examples={"y": torch.zeros(n)}) for job, n in zip(jobs, (8, 9, 1, 2), strict=False)]
    assert [len(block) for block in blocks(ragged, 4, padding=1.0)] == [4]


def test_a_batch_holds_what_the_model_reads_and_no_more() -> None:
    columns = {"x": torch.arange(6.0), "y": torch.arange(6), "t": torch.arange(6), "album": torch.arange(6)}
    batch = batch_of(columns, torch.tensor([4, 1]))
    assert {name: values.tolist() for name, values in batch.items()} == {"x": [4.0, 1.0], "y": [4, 1]}


def train(kind: str, data: Examples, training: LocalTraining, seed: int = 3) -> ClientResult:
    net = cases.model(kind, torch.float64)
    job = ClientJob(device_id="a", examples=data, seed=seed)
    return train_client(net, list(net.parameters()), cases.start(net), job, training)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("config", [NextWordLstm(embedding=8, hidden=6), StarLstm(embedding=8, hidden=6)])
def test_words_that_a_client_lacks_may_be_left_out(config: NextWordLstm | StarLstm, optimiser: str) -> None:
    """One after another on the same module; none of the sentences needs padding."""
    net = build_network(config, (cases.LENGTH,), cases.VOCABULARY, False).double()
    initialise(net, torch_rng(0))
    reference = copy.deepcopy(net)
    start, training = cases.start(net), replace(cases.TRAINING, optimiser=optimiser)
    for seed in range(3):
        data = dict(cases.examples("lm", 4, seed))
        data["x"] = data["x"] % (cases.VOCABULARY - 9) + 9
        if isinstance(config, StarLstm):
            data["y"] = torch.arange(4.0, dtype=torch.float64)
        job = ClientJob(device_id="a", examples=data, seed=seed)
        whole = train_client(reference, list(reference.parameters()), start, job, training)
        less = train_client(net, list(net.parameters()), start, job, training, net.compact)
        assert less.loss == whole.loss
        assert cases.distance(less.update, whole.update) == 0
        assert net.get_parameter("embedding.weight").shape[0] <= len(data["x"].unique()) + 1


def by_optimiser(kind: str, data: Examples, training: LocalTraining, seed: int = 3) -> tuple[dict[str, Tensor], float]:
    net = cases.model(kind, torch.float64)
    before, sgd, losses = cases.start(net), torch.optim.SGD(net.parameters(), lr=training.lr), []
    for index in batch_schedule(len(data["y"]), training, seed):
        sgd.zero_grad()
        loss = net(batch_of(data, index)).mean()
        loss.backward()
        sgd.step()
        losses.append(float(loss.detach()))
    return {n: p - before[n] for n, p in cases.start(net).items()}, sum(losses) / len(losses)


@pytest.mark.parametrize("n", [1, 5, 12])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_a_client_is_plain_sgd_as_torch_has_it(kind: str, n: int) -> None:
    data = cases.examples(kind, n, seed=2, dtype=torch.float64)
    result = train(kind, data, cases.TRAINING)
    update, loss = by_optimiser(kind, data, cases.TRAINING)
    assert cases.distance(result.update, update) < 1e-12
    assert result.loss == pytest.approx(loss, rel=1e-12)
    assert (result.num_examples, result.device_id) == (n, "a")
    assert min(float(tensor.abs().max()) for tensor in result.update.values()) > 1e-4


def test_an_update_is_the_trained_minus_the_received_parameters() -> None:
    """The sign of papers.md, erratum 1: the step goes downhill, so adding the update lowers the loss."""
    data, net = cases.examples("cnn", 20, seed=2, dtype=torch.float64), cases.model("cnn", torch.float64)
    before = float(net(data).mean().detach())
    result = train("cnn", data, LocalTraining(epochs=5, batch_size=20, lr=0.1))
    cases.load(net, {n: p + result.update[n] for n, p in cases.start(net).items()})
    assert float(net(data).mean().detach()) < before - 0.01


def test_a_learning_rate_of_zero_moves_nothing_and_a_larger_one_moves_more() -> None:
    def step(lr: float) -> dict[str, Tensor]:
        return dict(train("cnn", data, LocalTraining(epochs=1, batch_size=9, lr=lr)).update)

    data = cases.examples("cnn", 9, seed=2, dtype=torch.float64)
    assert all(bool((tensor == 0).all()) for tensor in step(0.0).values())
    assert cases.distance({n: 2 * u for n, u in step(0.1).items()}, step(0.2)) < 1e-12


def test_noise_on_every_gradient_adds_up_over_the_steps() -> None:
    """Plain SGD: the update of m steps has noise of sqrt(m) sigma lr, not of sigma lr once (papers.md 4.5)."""
    data = cases.examples("cnn", 40, seed=2, dtype=torch.float64)
    still = LocalTraining(epochs=3, batch_size=10, lr=1e-6)
    clean, noised = (train("cnn", data, replace(still, noise=sigma)).update for sigma in (0.0, 50.0))
    noise = torch.cat([(noised[name] - clean[name]).flatten() for name in clean])
    assert float(noise.std()) == pytest.approx(50 * 1e-6 * math.sqrt(12), rel=0.05)
    assert abs(float(noise.mean())) < 4 * float(noise.std()) / math.sqrt(len(noise))
    again = train("cnn", data, replace(still, noise=50.0)).update
    other = train("cnn", data, replace(still, noise=50.0), seed=4).update
    assert cases.distance(noised, again) == 0 < cases.distance(noised, other)


def test_no_noise_changes_no_bit_and_private_parameters_get_none() -> None:
    net = DualHead(cases.model("cnn"), bits=8)  # type: ignore[arg-type]
    net.reset(torch_rng(0))
    (device,) = defend_data([cases.device("cnn", 0, 6)], [SecretHead(bits=8, alpha2=0.0)], {}, 0)
    shared = {name: p.detach().clone() for name, p in net.public_parameters().items()}
    private = net.draw_private(torch_rng(1))
    job = ClientJob(device_id="a", examples=device.examples, seed=3, private=private)

    def trained(noise: float) -> ClientResult:
        once = LocalTraining(epochs=1, batch_size=6, lr=0.1, noise=noise)
        return train_client(net, list(net.parameters()), shared, job, once)

    quiet, loud = trained(0.0), trained(0.3)
    assert cases.distance(quiet.private, loud.private) == 0 < cases.distance(quiet.update, loud.update)
    assert cases.distance(loud.private, private) == 0, "alpha2 0 trains no head, and noise must not"
