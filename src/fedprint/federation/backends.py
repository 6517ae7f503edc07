"""Backends that run client jobs with equal results, and a timing that finds the fastest (on Ray: ray_backend.py)."""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from fedprint.data.examples import num_examples, take
from fedprint.federation.client import train_client
from fedprint.federation.precision import products_in
from fedprint.federation.spread import Executor, Spread
from fedprint.federation.vectorised import Vectorised, default_block
from fedprint.lab.gpus import best_device
from fedprint.lab.machine import cores
from fedprint.models.base import FedModule
from fedprint.models.kernels.conv import ConvGradients
from fedprint.models.kernels.dense import DenseGradients
from fedprint.types import Backend, ClientJob, ClientResult, FedprintError, LocalTraining, Params


class Sequential:
    """The reference: one copy of the model, one client after another, a plain loop."""

    name = "sequential"

    def __init__(self, model: FedModule) -> None:
        innermost = _device_of(model).type == "cpu" and model.channels_last
        layout = torch.channels_last if innermost else torch.preserve_format
        self._module = copy.deepcopy(model).to(memory_format=layout)
        self._parameters: list[Tensor] = list(self._module.parameters())

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``, in order."""
        for job in jobs:
            parameters = self._parameters[: len(params) + len(job.private)]
            with products_in(training.precision):
                result = train_client(self._module, parameters, params, job, training, self._module.compact)
            yield result

    def blocks(self, jobs: Sequence[ClientJob]) -> list[list[int]]:
        """Return every job alone."""
        return [[i] for i in range(len(jobs))]


IN_A_THREAD = 4
"""Clients that a thread stacks: convolutions of more would leave the cache of its core."""


class Threaded:
    """Trains ``workers`` blocks of clients at a time, each in a thread.

    A block is a stack of :data:`IN_A_THREAD` clients where the model has hand-written convolutions, else one client.
    Blocks do not depend on the number of threads, so that it changes no bit. Give torch one core per thread
    (``torch.set_num_threads(1)``); its kernels release the interpreter's lock.
    """

    name = "threaded"

    def __init__(self, model: FedModule, workers: int) -> None:
        stacks = isinstance(model.stacked_gradients(), ConvGradients)
        self._executors: list[tuple[str, Executor]] = [
            ("cpu", Vectorised(copy.deepcopy(model), IN_A_THREAD) if stacks else Sequential(model))
            for _ in range(workers)
        ]

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``; results come in job order."""
        return Spread(self._executors).run(jobs, params, training)

    def blocks(self, jobs: Sequence[ClientJob]) -> list[list[int]]:
        """Return as many blocks together as there are threads."""
        single, threads = self._executors[0][1].blocks(jobs), len(self._executors)
        return [list(chain(*single[start : start + threads])) for start in range(0, len(single), threads)]


_NUMBER = r"(?::([1-9]\d*))?"
_EXECUTORS: Mapping[str, Callable[[FedModule, int], Executor]] = {
    "sequential": lambda model, _: Sequential(model),
    "threaded": lambda model, workers: Threaded(model, workers or cores()),
    "vectorised": lambda model, block: Vectorised(model, block or default_block(_device_of(model).type, model)),
}


def make_backend(name: str, model: FedModule, devices: Sequence[str] = ()) -> Backend:
    """Return the backend of a name: ``sequential``, ``threaded[:WORKERS]``, ``vectorised[:BLOCK]`` or one on Ray.

    Workers default to the available cores, a block to 8 clients on a CPU and up to 512 on a GPU. It trains where the
    ``model`` is or, where torch ``devices`` are given, on these, with data and results wherever the caller has them.
    ``ray[:WORKERS][:EXECUTOR]`` is opened by :func:`open_backend`; its executor is ``sequential`` or, by default,
    ``vectorised``.
    """
    if match := re.fullmatch(rf"ray{_NUMBER}(?::(sequential|vectorised{_NUMBER}))?", name):
        workers, executor, block = match.groups()
        return _on_ray(model, executor or "vectorised", int(block or 0), int(workers or 0) or None, gpu=bool(devices))
    match = re.fullmatch(rf"sequential|(threaded|vectorised){_NUMBER}", name)
    if match is None:
        raise FedprintError(
            f"federation.backend: unknown backend '{name}'; use sequential, threaded[:WORKERS], vectorised[:BLOCK], "
            "ray[:WORKERS][:EXECUTOR] or auto"
        )
    make, number = _EXECUTORS[match[1] or name], int(match[2] or 0)
    if list(devices) in ([], [str(_device_of(model))]):
        return make(model, number)
    return Spread([(device, make(copy.deepcopy(model).to(device), number)) for device in devices])


def without_a_trial(model: FedModule, device: str) -> str:
    """Return the executor for clients of any number and size: stacks on a GPU or of small products, else threads."""
    return "vectorised" if device == "cuda" or isinstance(model.stacked_gradients(), DenseGradients) else "threaded"


def _device_of(model: FedModule) -> torch.device:
    return next(model.parameters()).device


@contextmanager
def open_backend(name: str, model: FedModule, devices: Sequence[str] = ()) -> Iterator[Backend]:
    """Yield the backend of a name; one on Ray leaves its cluster at the end."""
    backend = make_backend(name, model, devices)
    with backend if isinstance(backend, AbstractContextManager) else nullcontext(backend) as opened:
        yield opened


def on_one_machine(name: str) -> str:
    """Return the executor that trains the clients of a backend: that of its workers, if it is one on Ray."""
    return re.sub(r"^ray(:\d+)?:?", "", name) or "vectorised"


def _on_ray(model: FedModule, executor: str, block: int, workers: int | None, *, gpu: bool) -> Backend:
    from fedprint.federation.ray_backend import RayBackend  # late: Ray is an extra

    gpu = gpu or _device_of(model).type == "cuda"
    stacked = None if executor == "sequential" else block or default_block("cuda" if gpu else "cpu", model)
    return RayBackend(model, partial(_on_worker, executor, gpu), stacked, workers, gpu=gpu)


def _on_worker(executor: str, gpu: bool, model: FedModule) -> Backend:
    return make_backend(executor, model.to(best_device() if gpu else "cpu"))


GPU_STACKS = ("vectorised:64",)
"""Stacks to try on a GPU beside the largest: convolutions are fastest in smaller ones (benchmarks/RESULTS.md)."""
TRIAL_BATCHES, TRIAL_TURNS, GPU_FEW = 2, 5, 16
"""Batches that a trial trains of the largest client, how often, and clients of the plain loop on a GPU."""
WORTH = 0.95
"""The share of the plain loop's time that another executor must do with: a trial on a busy machine is not exact."""


def trial(model: FedModule, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> dict[str, float]:
    """Return seconds per client of each candidate on a few real jobs, with a share of their examples.

    The largest client has its first batches and the others as large a share, since unequal clients stack badly.
    After one turn to warm up, the candidates take turns. Each has the median of its ratios to ``sequential`` within a
    turn, so that other load, which comes and goes, meets them all. On a CPU the ratios are of processor time, which
    does not count the waiting for a busy core; those of ``threaded``, which is to use idle ones, are of the clock.
    """
    short = replace(training, epochs=1, lr=0.0)
    sizes = [num_examples(job.examples) for job in jobs]
    part = min(1.0, TRIAL_BATCHES * training.batch_size / max(sizes))
    few = [
        replace(job, examples=take(job.examples, slice(0, math.ceil(part * n))))
        for job, n in zip(jobs, sizes, strict=True)
    ]
    stacked = f"vectorised:{max(8, len(jobs))}"
    on_gpu = _device_of(model).type != "cpu"
    names = ["sequential", *(GPU_STACKS if on_gpu else ("threaded", "vectorised:4")), stacked]
    backends = [make_backend(name, model) for name in names]
    shares = [few[:GPU_FEW] if on_gpu and name == "sequential" else few for name in names]
    turns: list[list[tuple[float, float]]] = []
    for _ in range(1 + TRIAL_TURNS):
        turns.append([])
        for backend, share in zip(backends, shares, strict=True):
            clock, processor = time.perf_counter(), time.process_time()
            try:
                for _result in backend.run(share, params, short):
                    pass
            except torch.OutOfMemoryError:  # this GPU has no room for such a stack
                clock = processor = -math.inf
            spent = time.perf_counter() - clock, time.process_time() - processor
            turns[-1].append((spent[0] / len(share), spent[1] / len(share)))
    seconds = torch.tensor(turns[1:], dtype=torch.float64)  # (turns, candidates, 2)
    by_clock, by_processor = (seconds / seconds[:, :1]).median(0).values.unbind(1)
    waits = torch.tensor([on_gpu or name == "threaded" for name in names])
    ratios = torch.where(waits, by_clock, by_processor)
    return dict(zip(names, (ratios * seconds[:, 0, 0].median()).tolist(), strict=True))


def fastest(seconds: Mapping[str, float]) -> str:
    """Return the candidate of a :func:`trial` to use: the plain loop, unless another is clearly faster."""
    best = min(seconds, key=lambda name: seconds[name])
    return best if seconds[best] <= WORTH * seconds["sequential"] else "sequential"
