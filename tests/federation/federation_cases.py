"""Small federations on made-up data, and a writer that keeps what it gets in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedprint.defences.points import ROLES
from fedprint.federation.backends import make_backend
from fedprint.federation.rounds import Defence, FederationPlan, federate
from fedprint.models.base import FedModule, initialise
from fedprint.models.components import FullyConnected, NextWordLstm, OrientedGradients, SmallCnn
from fedprint.models.networks import build_network
from fedprint.store.layout import StoreLayout
from fedprint.types import (
    Backend,
    ClientJob,
    ClientResult,
    Device,
    Examples,
    LocalTraining,
    Observation,
    Params,
    Role,
    Truth,
)

CLASSES, VOCABULARY, LENGTH, FEATURES = 5, 30, 7, 24
KINDS = ("cnn", "multi-label", "centred", "lm", "mlp", "mlp-multi-label", "linear")
TRAINING = LocalTraining(epochs=2, batch_size=5, lr=0.2)
SIZES = (17, 1, 20, 10, 11, 12, 10, 20)
"""Unequal, but alike enough for stacks of unequal steps; a one-example client; and n that the batch size divides (no
empty batch may come of it)."""


def model(kind: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> FedModule:
    if kind == "lm":
        net = build_network(NextWordLstm(embedding=8, hidden=6), (LENGTH,), VOCABULARY, False)
    elif kind == "linear":
        net = build_network(OrientedGradients(), (FEATURES,), CLASSES, False)
    elif kind.startswith("mlp"):
        several = kind == "mlp-multi-label"
        mlp = FullyConnected(hidden=16, activation="sigmoid" if several else "relu", centred=several)
        net = build_network(mlp, (1, 12, 12), CLASSES, several)
    else:
        config = SmallCnn(channels=(4, 8), hidden=16, centred=kind == "centred")
        net = build_network(config, (1, 12, 12), CLASSES, kind == "multi-label")
    initialise(net, torch.Generator().manual_seed(seed), net.initial_gain)
    return net.to(dtype)


def start(net: FedModule) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def examples(kind: str, n: int, seed: int, dtype: torch.dtype = torch.float32) -> Examples:
    rng = torch.Generator().manual_seed(seed)
    if kind == "lm":
        y = torch.randint(VOCABULARY, (n, LENGTH), generator=rng)
        y[torch.rand(y.shape, generator=rng) < 0.2] = -100
        return {"x": torch.randint(VOCABULARY, (n, LENGTH), generator=rng), "y": y}
    x = torch.rand((n, FEATURES) if kind == "linear" else (n, 1, 12, 12), generator=rng).to(dtype)
    if kind.endswith("multi-label"):
        return {"x": x, "y": (torch.rand((n, CLASSES), generator=rng) < 0.3).to(dtype)}
    return {"x": x, "y": torch.randint(CLASSES, (n,), generator=rng)}


def devices(kind: str = "cnn", sizes: Sequence[int] = SIZES, dtype: torch.dtype = torch.float32) -> tuple[Device, ...]:
    """Two devices a user: prior and anonymous in turn."""
    return tuple(device(kind, i, n, dtype) for i, n in enumerate(sizes))


def device(kind: str, index: int, n: int, dtype: torch.dtype = torch.float32) -> Device:
    role: Role = "anonymous" if index % 2 else "prior"
    name = f"user-{index // 2}-{role}"
    return Device(
        device_id=name, user_id=index // 2, role=role, examples=examples(kind, n, seed=100 + index, dtype=dtype)
    )


def plan(rounds: int = 3, cohort: int = 4, training: LocalTraining = TRAINING, seed: int = 7) -> FederationPlan:
    return FederationPlan(rounds=rounds, cohort=cohort, training=training, seed=seed)


def layout(of: FederationPlan, params: Params, **changes: Any) -> StoreLayout:
    shapes = {name: tuple(tensor.shape) for name, tensor in params.items()}
    return StoreLayout(
        rounds=of.rounds, cohort=of.rows, shapes=shapes, kept=tuple(shapes), fingerprint="case", **changes
    )


class MemoryWriter:
    """Has the interface of a StoreWriter and keeps everything as it came."""

    def __init__(self, initial: Params) -> None:
        self.globals: list[Params] = [initial]
        self.observed: list[list[Observation]] = []
        self.truths: list[list[Truth]] = []
        self._metrics: list[dict[str, Any]] = []

    @property
    def next_round(self) -> int:
        return len(self.observed)

    def latest_params(self) -> Params:
        return self.globals[-1]

    def metrics(self) -> list[dict[str, Any]]:
        return self._metrics

    def append(
        self,
        round: int,
        observations: Sequence[Observation],
        truths: Sequence[Truth],
        after: Params,
        metrics: Mapping[str, float],
    ) -> None:
        assert round == self.next_round
        self.observed.append(list(observations))
        self.truths.append(list(truths))
        self.globals.append(after)
        self._metrics.append({"round": round, **metrics})


def run(
    population: Sequence[Device],
    backend: Backend,
    writer: Any,
    of: FederationPlan,
    defences: Sequence[Defence] = (),
    roles: Sequence[Role] = ROLES,
) -> dict[str, Tensor]:
    """Run or resume a federation without utility and display."""
    return federate(
        devices=population,
        plan=of,
        backend=backend,
        defences=defences,
        writer=writer,
        utility=lambda t, params: {},
        report=lambda report: None,
        roles=roles,
    )


def federated(
    kind: str = "cnn",
    backend: str = "sequential",
    of: FederationPlan | None = None,
    defences: Sequence[Defence] = (),
    dtype: torch.dtype = torch.float32,
    population: Sequence[Device] | None = None,
    roles: Sequence[Role] = ROLES,
) -> MemoryWriter:
    """Run a whole federation in memory and return what was recorded."""
    net = model(kind, dtype)
    writer = MemoryWriter(start(net))
    chosen = devices(kind, dtype=dtype) if population is None else population
    run(chosen, make_backend(backend, net), writer, of or plan(), defences, roles)
    return writer


def distance(a: Params, b: Params) -> float:
    """Return the largest difference of any entry."""
    assert list(a) == list(b)
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def load(net: torch.nn.Module, params: Params) -> None:
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(params[name])


def on(d: Device, place: str) -> Device:
    return replace(d, examples={name: column.to(place) for name, column in d.examples.items()})


@dataclass
class Scripted:
    """A backend whose clients say what the test wants: the update ``value(t, job)`` everywhere, and a loss."""

    values: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[tuple[int, str], float] = field(default_factory=dict)
    name: str = "scripted"
    rounds: int = 0

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        t, self.rounds = self.rounds, self.rounds + 1
        return iter([self._result(t, job, params) for job in jobs])

    def _result(self, t: int, job: ClientJob, params: Params) -> ClientResult:
        value = self.values.get(job.device_id, 1.0)
        return ClientResult(
            device_id=job.device_id,
            update={name: torch.full_like(tensor, value) for name, tensor in params.items()},
            num_examples=len(job.examples["y"]),
            loss=self.losses.get((t, job.device_id), 1.0),
        )


def pairs(writer: MemoryWriter) -> list[tuple[Any, Any]]:
    facts = {truth.obs_id: truth for truths in writer.truths for truth in truths}
    return [(seen, facts[seen.obs_id]) for observed in writer.observed for seen in observed]


def paired(a: MemoryWriter, b: MemoryWriter) -> list[tuple[tuple[Any, Any], tuple[Any, Any]]]:
    return list(zip(pairs(a), pairs(b), strict=True))


def first_round(a: MemoryWriter, b: MemoryWriter) -> list[tuple[tuple[Any, Any], tuple[Any, Any]]]:
    return paired(a, b)[:4]


class Killed(BaseException):
    """Stands for a kill: nothing in the library may catch it."""


@dataclass
class Dying:
    """A backend that dies in round ``fatal`` (counted from its own first) after some clients have trained."""

    inner: Any
    fatal: int
    name: str = "dying"

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        self.fatal -= 1
        for i, result in enumerate(self.inner.run(jobs, params, training)):
            if self.fatal < 0 and i == 2:
                raise Killed
            yield result


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
