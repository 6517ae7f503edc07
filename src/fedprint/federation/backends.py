"""Backends that run client jobs with equal results, and a timing that finds the fastest (on Ray: ray_backend.py)."""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from fedprint.data.examples import num_examples, stack_rows, take
from fedprint.federation.client import blocks, epochs, noise_rng, noised, train_client
from fedprint.federation.local_optimisers import Stepper
from fedprint.federation.precision import forward_in, products_in
from fedprint.federation.spread import Executor, Spread
from fedprint.lab.gpus import best_device
from fedprint.lab.machine import cores
from fedprint.models.base import FedModule
from fedprint.models.kernels.dense import whole
from fedprint.types import Backend, ClientJob, ClientResult, FedprintError, LocalTraining, Params, Precision


def default_block(device: str) -> int:
    """Return how many clients ``vectorised`` stacks by default: a GPU has room for many (benchmarks/RESULTS.md)."""
    return 64 if device == "cuda" else 8


class Sequential:
    """The reference: one copy of the model, one client after another, a plain loop."""

    name = "sequential"

    def __init__(self, model: FedModule) -> None:
        on_cpu = _device_of(model).type == "cpu"
        layout = torch.channels_last if on_cpu and model.channels_last else torch.preserve_format
        self._module = copy.deepcopy(model).to(memory_format=layout)
        self._by_hand = self._module.conv_gradients() if on_cpu else None
        self._parameters: list[Tensor] = list(self._module.parameters())

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``, in order."""
        for job in jobs:
            parameters = self._parameters[: len(params) + len(job.private)]
            by_hand = None if training.precision == "bf16" else self._by_hand
            with products_in(training.precision):
                result = train_client(self._module, parameters, params, job, training, self._module.compact, by_hand)
            yield result

    def blocks(self, jobs: Sequence[ClientJob]) -> list[list[int]]:
        """Return every job alone."""
        return [[i] for i in range(len(jobs))]


class Threaded:
    """As ``sequential``, but ``workers`` clients at a time, each with a thread and a copy of the model.

    A client's arithmetic is the same on any thread, so results equal ``sequential`` to the bit. Give torch one core per
    thread (``torch.set_num_threads(1)``); its kernels release the interpreter's lock.
    """

    name = "threaded"

    def __init__(self, model: FedModule, workers: int) -> None:
        self.workers = workers
        self._replicas: SimpleQueue[Sequential] = SimpleQueue()
        for _ in range(workers):
            self._replicas.put(Sequential(model))

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``; results come in job order."""

        def train(job: ClientJob) -> ClientResult:
            replica = self._replicas.get()
            try:
                return next(iter(replica.run([job], params, training)))
            finally:
                self._replicas.put(replica)

        with ThreadPoolExecutor(self.workers) as pool:
            yield from pool.map(train, jobs)

    def blocks(self, jobs: Sequence[ClientJob]) -> list[list[int]]:
        """Return as many jobs together as there are threads."""
        return [list(range(start, min(start + self.workers, len(jobs)))) for start in range(0, len(jobs), self.workers)]


class Vectorised:
    """Clients of similar size are stacked and trained together, in blocks of ``block`` clients.

    The gradients are the model's own hand-written ones, or else those of ``vmap(grad)``.
    """

    name = "vectorised"

    def __init__(self, model: FedModule, block: int) -> None:
        self.block = block
        self._gradients = cache(partial(_stacked_gradients, model))

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``; results come in job order."""
        results: dict[int, ClientResult] = {}
        for chosen in self.blocks(jobs):
            with products_in(training.precision):
                block = self._run_block([jobs[i] for i in chosen], params, training)
            results.update(zip(chosen, block, strict=True))
        return (results[i] for i in range(len(jobs)))

    def blocks(self, jobs: Sequence[ClientJob]) -> list[list[int]]:
        """Return positions of jobs of similar size."""
        return list(blocks(jobs, self.block))

    def _run_block(self, jobs: list[ClientJob], params: Params, training: LocalTraining) -> list[ClientResult]:
        like = next(iter(params.values()))
        stacked = {name: p.expand(len(jobs), *p.shape).clone() for name, p in params.items()}
        stacked |= {name: torch.stack([job.private[name] for job in jobs]) for name in jobs[0].private}
        gradients_of = self._gradients(training.precision)
        step_on, parameters = Stepper(training, list(stacked.values())), list(stacked)
        rngs = [noise_rng(job) for job in jobs]
        total = torch.zeros(len(jobs), dtype=torch.float64, device=like.device)
        index, mask = _pad_schedules(jobs, training)
        active, reach = mask.amax(2).to(like), math.ceil(index.shape[1] / training.epochs)
        for first in range(0, index.shape[1], reach):  # of an epoch at a time the examples are copied
            part = slice(first, first + reach)
            batches = _batches(jobs, index[:, part])
            for step, here in enumerate(mask[:, part].to(like).unbind(1), first):
                batch = {column: values[:, step - first] for column, values in batches.items()}
                gradients, losses = gradients_of(stacked, batch, here)
                if training.noise:
                    shared = {name: whole(gradients[name]) for name in params}
                    gradients = {**gradients, **_noised_rows(shared, training.noise, rngs, active[:, step])}
                step_on([gradients[name] for name in parameters], active[:, step])
                total += losses
        return _unstack(jobs, stacked, params, total / active.sum(1))


def _stacked_gradients(model: FedModule, precision: Precision) -> Callable[..., Any]:
    """Return the model's hand-written gradients, which know no bfloat16, or else those of ``vmap``."""
    dense = None if precision == "bf16" else model.dense_gradients()
    return dense or vmap(grad_and_value(_masked_loss(model.for_vmap(), precision)))


def _masked_loss(model: FedModule, precision: Precision) -> Callable[[Params, dict[str, Tensor], Tensor], Tensor]:
    def loss(params: Params, batch: dict[str, Tensor], mask: Tensor) -> Tensor:
        with forward_in(precision, mask.device):
            losses: Tensor = functional_call(model, dict(params), (batch,))
        return (losses * mask).sum() / mask.sum().clamp(min=1)

    return loss


def _noised_rows(gradients: Params, sigma: float, rngs: Sequence[torch.Generator], active: Tensor) -> dict[str, Tensor]:
    """Return gradients (k, ...) with noise from each client's generator; clients that have ended draw none."""
    rows = [noised([g[k] for g in gradients.values()], sigma if active[k] else 0.0, rng) for k, rng in enumerate(rngs)]
    return {name: torch.stack(column) for name, column in zip(gradients, zip(*rows, strict=True), strict=True)}


def _pad_schedules(jobs: Sequence[ClientJob], training: LocalTraining) -> tuple[Tensor, Tensor]:
    """Return each client's rows at every step, and a mask, 1 for rows that count: both (k, steps, batch).

    Short batches are padded with the client's first example. A client with fewer steps has its own without a pause, so
    that no state of an optimiser changes between them.
    """
    sizes = [num_examples(job.examples) for job in jobs]
    width = min(training.batch_size, max(sizes))
    steps = [math.ceil(n / width) for n in sizes]
    index = torch.zeros(len(jobs), training.epochs * max(steps), width, dtype=torch.long)
    mask = torch.zeros(index.shape)
    for k, (job, n) in enumerate(zip(jobs, sizes, strict=True)):
        for epoch, order in enumerate(epochs(n, training, job.seed)):
            part = slice(epoch * steps[k], (epoch + 1) * steps[k])
            index[k, part].view(-1)[:n] = order
            mask[k, part].view(-1)[:n] = 1
    return index, mask


def _batches(jobs: Sequence[ClientJob], index: Tensor) -> dict[str, Tensor]:
    """Return the columns at the rows ``index`` (k, steps, batch) of the jobs: (k, steps, batch, ...)."""
    rows = index.flatten(1).to(jobs[0].examples["y"].device)
    taken = stack_rows([job.examples for job in jobs], rows)
    return {name: values.view(*index.shape, *values.shape[2:]) for name, values in taken.items()}


def _unstack(
    jobs: Sequence[ClientJob], stacked: dict[str, Tensor], params: Params, losses: Tensor
) -> list[ClientResult]:
    updates = {name: stacked[name].sub_(params[name]) for name in params}
    return [
        ClientResult(
            device_id=job.device_id,
            update={name: tensor[k] for name, tensor in updates.items()},
            num_examples=num_examples(job.examples),
            loss=float(losses[k]),
            private={name: stacked[name][k].clone() for name in job.private},
        )
        for k, job in enumerate(jobs)
    ]


_NUMBER = r"(?::([1-9]\d*))?"
_EXECUTORS: Mapping[str, Callable[[FedModule, int], Executor]] = {
    "sequential": lambda model, _: Sequential(model),
    "threaded": lambda model, workers: Threaded(model, workers or cores()),
    "vectorised": lambda model, block: Vectorised(model, block or default_block(_device_of(model).type)),
}


def make_backend(name: str, model: FedModule, devices: Sequence[str] = ()) -> Backend:
    """Return the backend of a name: ``sequential``, ``threaded[:WORKERS]``, ``vectorised[:BLOCK]`` or one on Ray.

    Workers default to the available cores, a block to 8 clients on a CPU and 64 on a GPU. It trains where the ``model``
    is or, where torch ``devices`` are given, on these, with data and results wherever the caller has them.
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
    stacked = None if executor == "sequential" else block or default_block("cuda" if gpu else "cpu")
    return RayBackend(model, partial(_on_worker, executor, gpu), stacked, workers, gpu=gpu)


def _on_worker(executor: str, gpu: bool, model: FedModule) -> Backend:
    return make_backend(executor, model.to(best_device() if gpu else "cpu"))


TRIAL_BATCHES, TRIAL_TURNS = 2, 5
"""Batches that a trial trains of each client, and how often: enough to rank the candidates."""
WORTH = 0.95
"""The share of the plain loop's time that another executor must do with: a trial on a busy machine is not exact."""


def trial(model: FedModule, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> dict[str, float]:
    """Return seconds per client of each candidate on the first batches of a few real jobs.

    After one turn to warm up, the candidates take turns. Each has the median of its ratios to ``sequential`` within a
    turn, so that other load, which comes and goes, meets them all. On a CPU the ratios are of processor time, which
    does not count the waiting for a busy core; those of ``threaded``, which is to use idle ones, are of the clock.
    """
    short = replace(training, epochs=1, lr=0.0)
    first = slice(0, TRIAL_BATCHES * training.batch_size)
    few = [replace(job, examples=take(job.examples, first)) for job in jobs]
    names = ["sequential", "threaded", "vectorised:4", f"vectorised:{max(8, len(jobs))}"]
    backends = [make_backend(name, model) for name in names]
    turns: list[list[tuple[float, float]]] = []
    for _ in range(1 + TRIAL_TURNS):
        turns.append([])
        for backend in backends:
            clock, processor = time.perf_counter(), time.process_time()
            for _result in backend.run(few, params, short):
                pass
            turns[-1].append((time.perf_counter() - clock, time.process_time() - processor))
    seconds = torch.tensor(turns[1:], dtype=torch.float64)  # (turns, candidates, 2)
    by_clock, by_processor = (seconds / seconds[:, :1]).median(0).values.unbind(1)
    waits = torch.tensor([_device_of(model).type != "cpu" or name == "threaded" for name in names])
    ratios = torch.where(waits, by_clock, by_processor)
    return dict(zip(names, (ratios * seconds[:, 0, 0].median() / len(jobs)).tolist(), strict=True))


def fastest(seconds: Mapping[str, float]) -> str:
    """Return the candidate of a :func:`trial` to use: the plain loop, unless another is clearly faster."""
    best = min(seconds, key=lambda name: seconds[name])
    return best if seconds[best] <= WORTH * seconds["sequential"] else "sequential"
