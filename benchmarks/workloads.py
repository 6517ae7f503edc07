"""W1, W2 and W3 in plain PyTorch, and the loop that every engine is compared with. It needs torch and nothing else.

One round: the cohort's clients train one epoch each from the same weights, one after another, with layers of
``torch.nn`` and ``torch.optim.SGD``; the server adds the mean of their updates. Every client has as many examples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

Client = tuple[Tensor, Tensor]
"""A client's inputs (n, ...) and labels (n, ...)."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A federation: ``clients``, of which a round draws ``cohort``, each with ``examples`` in batches of ``batch``."""

    title: str
    clients: int
    cohort: int
    examples: int
    batch: int
    lr: float
    network: Callable[[], nn.Module]
    draw: Callable[[int, torch.Generator], Client]

    def client(self, number: int) -> Client:
        """Return the examples of a client, always the same."""
        return self.draw(self.examples, torch.Generator().manual_seed(number))

    def drawn(self, turn: int) -> list[int]:
        """Return the numbers of the clients of a round, always the same."""
        return random.Random(turn).sample(range(self.clients), self.cohort)


class LanguageModel(nn.Module):
    """Embedding of 100, LSTM of 64, scores over 5,000 words (b, words, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5000, 100)
        self.lstm = nn.LSTM(100, 64, batch_first=True)
        self.head = nn.Linear(64, 5000)
        nn.init.zeros_(self.lstm.get_parameter("bias_hh_l0")).requires_grad_(False)  # one bias is enough

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of sentences (b, length)."""
        scores: Tensor = self.head(self.lstm(self.embedding(x))[0])
        return scores.transpose(1, 2)


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip


def fully_connected(hidden: int = 64) -> nn.Module:
    """Return 784-hidden-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def _pictures(n: int, rng: torch.Generator) -> Client:
    return torch.rand(n, 1, 28, 28, generator=rng), torch.randint(10, (n,), generator=rng)


def _sentences(n: int, rng: torch.Generator) -> Client:
    return torch.randint(5000, (n, 16), generator=rng), torch.randint(5000, (n, 16), generator=rng)


_images = partial(Workload, clients=100, cohort=10, examples=60, batch=10, lr=0.1, draw=_pictures)
WORKLOADS = {
    "W1": _images(title="CNN 5x5x16, pool, 5x5x32, pool, FC 10", network=_convolutional),
    "W2": _images(title="MLP 784-64-10", network=fully_connected),
    "W3": Workload(
        title="LM 5000x100, LSTM 64",
        clients=50,
        cohort=5,
        examples=64,
        batch=16,
        lr=1.0,
        network=LanguageModel,
        draw=_sentences,
    ),
}
"""The three of the project's comparisons: 100 clients, 10 a round, 60 images of 28x28; 50 clients, 5 a round, 64
sentences of 16 tokens."""


class PlainLoop:
    """The loop over clients; its network holds the weights of whoever trained last."""

    def __init__(self, work: Workload, device: str = "cpu") -> None:
        self.work = work
        self.network = work.network().to(device)
        self.parameters = [p for p in self.network.parameters() if p.requires_grad]

    def weights(self) -> list[Tensor]:
        """Return a copy of the network's weights."""
        return [p.detach().clone() for p in self.parameters]

    def train(self, received: Sequence[Tensor], client: Client, seed: int) -> list[Tensor]:
        """Return one client's update; ``seed`` orders its batches."""
        x, y = client
        with torch.no_grad():
            for parameter, weight in zip(self.parameters, received, strict=True):
                parameter.copy_(weight)
        sgd = torch.optim.SGD(self.parameters, lr=self.work.lr)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        for batch in torch.split(order, self.work.batch):
            sgd.zero_grad()
            functional.cross_entropy(self.network(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            sgd.step()
        return [p.detach() - weight for p, weight in zip(self.parameters, received, strict=True)]

    def round(self, received: Sequence[Tensor], clients: Sequence[Client]) -> list[Tensor]:
        """Return the mean update of a cohort; the seed of a client is its position."""
        updates = [self.train(received, client, seed) for seed, client in enumerate(clients)]
        return [torch.stack(column).mean(0) for column in zip(*updates, strict=True)]
