"""The nouns and protocols that every layer shares.

Shape letters used throughout: n examples of a user, b batch, k clients of a block, d flattened parameters,
q questions, m answer options. All records are frozen and keyword-only; values flow one way:
users -> federation -> update store -> attack -> evaluation -> report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Generator, Tensor

from fedprint.errors import FedprintError as FedprintError

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
"""The type in which updates and kernels are stored."""
Doubles = NDArray[np.float64]
"""The type in which scores and measurements are computed."""
Scores = Doubles
"""An attack's score of each option for each question: (q, m), higher = more likely."""

Examples = Mapping[str, Tensor]
"""Columns of a user or a batch: ``x`` (n, ...), ``y`` (n, ...), optional ``t`` (n,) time or order, ``album`` (n,).

A device with a secret head has ``code`` (n, bits) and ``code_weight`` (n,) too (data/examples.py).
"""

Params = Mapping[str, Tensor]
"""Parameter name -> tensor; an update has the same names and shapes, and is always ``w - w_t`` (erratum 1)."""

Role = Literal["anonymous", "prior"]
Linkage = Literal["update", "device"]
View = Literal["local", "central", "aggregate"]
AdversaryName = Literal["naive", "adaptive"]

Aggregation = Literal["fedavg", "mean", "round-robin"]
"""How a round's updates are applied: their mean weighted by examples, their plain mean, or one after another.

In round robin the server applies each update before the next device of the cohort trains (spn, algorithm 4). The
observed updates of a round, in the order of their slots, lead from its global model to the next.
"""

LocalOptimiser = Literal["sgd", "momentum", "adam"]
Precision = Literal["full", "tf32", "bf16"]
"""How a client takes its steps: plain SGD, SGD with momentum .9, or Adam; spn trains with all three (papers.md 4.5)."""


@dataclass(frozen=True, kw_only=True)
class User:
    """A person with data. ``attributes`` maps an attribute's name to an integer class."""

    user_id: int
    examples: Examples
    attributes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Device:
    """A participant of the federation; one user owns one device of each role (papers.md, section 1)."""

    device_id: str
    user_id: int
    role: Role
    examples: Examples


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """What a client does in one round. ``batch_size`` is examples per batch, never batches per client.

    ``noise`` is the standard deviation of the Gaussian noise that a client adds to every entry of each gradient. The
    gradients of its private parameters get no noise. ``precision`` is how products are rounded.
    """

    epochs: int
    batch_size: int
    lr: float
    optimiser: LocalOptimiser = "sgd"
    noise: float = 0.0
    precision: Precision = "full"


@dataclass(frozen=True, kw_only=True)
class ClientJob:
    """One client's work in one round: its examples (n, ...) and the seed of its batch order.

    ``private`` are the parameters that only this client has; in the model they come after the shared ones.
    """

    device_id: str
    examples: Examples
    seed: int
    private: Params = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClientResult:
    """The result of local training: ``update`` = trained minus received parameters, ``loss`` = mean over the steps.

    ``private`` are the client's private parameters after training; they never leave it.
    """

    device_id: str
    update: Params
    num_examples: int
    loss: float
    private: Params = field(default_factory=dict)


@runtime_checkable
class DataDefence(Protocol):
    """Point 1: acts once on a device's own examples before training; n may grow, never below 1."""

    def settled(self, rng: Generator) -> DataDefence:
        """Return the defence as one device runs it; ``rng`` draws its strength where devices differ."""

    def on_data(self, examples: Examples, background: Examples, rng: Generator) -> Examples:
        """Return the examples the device trains on; reads this device's examples and the background only."""


@runtime_checkable
class UpdateDefence(Protocol):
    """Point 2: acts on the update as it leaves the device and on the server's mean before it is applied."""

    def settled(self, rng: Generator) -> UpdateDefence:
        """Return the defence as one device runs it; ``rng`` draws its strength where devices differ."""

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return what the device sends."""

    def on_server(self, mean: Params, cohort_size: int, rng: Generator) -> Params:
        """Return what the server applies."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One update as the server sees it.

    ``pseudonym`` is a random name that persists over rounds (None when rounds are not linkable). ``user_id`` is set
    for prior devices only: the adversary runs them.
    """

    obs_id: int
    round: int
    role: Role
    num_examples: int
    pseudonym: str | None
    user_id: int | None
    update: Params


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Who sent an observation: for evaluation only, kept in a folder of its own."""

    obs_id: int
    user_id: int
    device_id: str


@dataclass(frozen=True, kw_only=True)
class Questions:
    """The questions for an attack: ``subjects`` (q,) observation ids or pseudonyms, ``options`` (m,) user ids."""

    kind: Literal["user"]
    linkage: Linkage
    subjects: tuple[str, ...]
    options: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """An attack's answer: ``scores`` (q, m), higher = more likely."""

    scores: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number with its interval, chance level and counts; ``keys`` are the columns of measurements.jsonl.

    ``p_chance`` is the one-sided p of a permutation test against "no better than without any link to the user"
    (evaluation/shuffled.py), None where none was made.
    """

    metric: str
    unit: str
    value: float
    lo: float
    hi: float
    chance: float | None
    n_questions: int
    n_users: int
    keys: Mapping[str, Any] = field(default_factory=dict)
    p_chance: float | None = None


class Backend(Protocol):
    """Runs client jobs; results come in job order and agree with ``sequential`` to 1e-5 (float32)."""

    name: str

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``."""
