"""What the example trains, without Flower: people, a network, local training.

The people are real writers of digits where the data are there, else invented users. Every user owns two simulated
clients: one trains on the user's private examples, and one, whose sender the auditor knows, on other examples of the
same user. The background is of other people.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from fedprint.data.sources.images import MnistWriters
from fedprint.data.splits import split_users
from fedprint.protect import modes
from fedprint.rng import numpy_rng
from fedprint.types import User

USERS, ROUNDS, BATCH, LR = 30, 6, 8, 0.1

Data = dict[str, Tensor]
"""``x`` float32 (n, 1, h, w) in [0, 1] and ``y`` int64 (n,)."""


@dataclass(frozen=True, kw_only=True)
class People:
    """``clients`` are ordered as Flower counts them: client 2 k is the known one of user k, 2 k + 1 the private one."""

    clients: tuple[Data, ...]
    background: Data
    test: Data


@cache
def load_people(data_dir: Path | None, users: int = USERS) -> People:
    """Return writers of mnist_writers below ``data_dir``, or invented users where that is None."""
    everyone, others = _invented(users) if data_dir is None else _writers(data_dir, users)
    split = split_users(everyone, seed=0)
    pairs = zip(split.prior, split.private, strict=True)
    return People(
        clients=tuple(_data(user) for pair in pairs for user in pair),
        background=_joined([_data(user) for user in others]),
        test=_joined([_data(user) for user in split.test]),
    )


@cache
def background(data_dir: Path | None) -> Data:
    """Return the background with the mode of each example; every process makes it once for itself."""
    public = load_people(data_dir).background
    return {**public, "cluster": torch.from_numpy(modes(public["x"], clusters=20))}


def network() -> nn.Module:
    """Return a small network for grey images of 28 x 28 pixels and ten classes, always the same one."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))


def train(model: nn.Module, data: Data, seed: int) -> None:
    """Train one epoch of plain SGD; the order of the examples follows from the seed."""
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    order = torch.randperm(len(data["y"]), generator=torch.Generator().manual_seed(seed))
    for batch in order.split(BATCH):
        optimiser.zero_grad()
        functional.cross_entropy(model(data["x"][batch]), data["y"][batch]).backward()
        optimiser.step()


def accuracy(model: nn.Module, data: Data) -> float:
    """Return the share of examples that a model names rightly."""
    with torch.no_grad():
        return float((model(data["x"]).argmax(1) == data["y"]).float().mean())


def _writers(data_dir: Path, users: int) -> tuple[list[User], list[User]]:
    dataset = MnistWriters(users=users).load(data_dir, seed=0)
    return list(dataset.users), list(dataset.background)


def _invented(users: int) -> tuple[list[User], list[User]]:
    """Deal the first half of scikit-learn's 1,797 digits to users who prefer some digits; the rest is background.

    Raises ValueError for more users than have six digits each.
    """
    digits = load_digits()
    x = functional.interpolate(torch.from_numpy(digits.images[:, None]).float() / 16, size=28)
    y = torch.from_numpy(digits.target).long()
    half, rng = len(y) // 2, numpy_rng(0, "invented")
    size = half // users
    if size < 6:
        raise ValueError(f"{users} users are too many for {half} digits; ask for at most {half // 6}")
    free = list(range(half))
    dealt = []
    for _ in range(users):
        taste = rng.dirichlet(np.full(10, 0.5))
        weight = taste[digits.target[free]] + 1e-6
        mine = rng.choice(free, size, replace=False, p=weight / weight.sum())
        free = sorted(set(free) - set(mine.tolist()))
        dealt.append(torch.from_numpy(mine))
    dealt.append(torch.arange(half, len(y)))
    people = [User(user_id=k, examples={"x": x[rows], "y": y[rows]}) for k, rows in enumerate(dealt)]
    return people[:-1], people[-1:]


def _data(user: User) -> Data:
    x = user.examples["x"]
    return {"x": x.float() / 255 if x.dtype == torch.uint8 else x, "y": user.examples["y"]}


def _joined(parts: list[Data]) -> Data:
    return {name: torch.cat([part[name] for part in parts]) for name in ("x", "y")}
