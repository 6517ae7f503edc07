"""The backend that stacks clients and trains them together. On a GPU their step is captured once and replayed."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from fedprint.data.examples import num_examples, stack_rows
from fedprint.federation import few_examples
from fedprint.federation.client import PADDING, blocks, epochs, noise_rng, noised
from fedprint.federation.local_optimisers import Stepper
from fedprint.federation.precision import forward_in, products_in
from fedprint.models.base import FedModule
from fedprint.models.kernels.conv import ConvGradients
from fedprint.models.kernels.dense import DenseGradients, whole
from fedprint.types import ClientJob, ClientResult, LocalTraining, Params, Precision

ON_GPU, STACK_BYTES = 512, 1 << 30
"""Clients of a stack on a GPU, and the most bytes of their parameters: beyond these, larger stacks gain little."""
CAPTURED = 8
"""Captured steps that are kept, one for each shape of a stack and each setting of training."""


def default_block(device: str, model: FedModule) -> int:
    """Return how many clients ``vectorised`` stacks by default: a GPU has room for many (benchmarks/RESULTS.md)."""
    if device != "cuda":
        return 8
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return max(8, min(ON_GPU, _power_of_two(STACK_BYTES // max(size, 1) + 1) // 2))


class Vectorised:
    """Clients of similar size are stacked and trained together, in blocks of ``block`` clients.

    The gradients are the model's own hand-written ones, or else those of ``vmap(grad)``.
    """

    name = "vectorised"

    def __init__(self, model: FedModule, block: int) -> None:
        self.block = block
        # On a GPU launches should cost more than rows (not measured), so that the number of stacks counts.
        self._padding = 1.0 if next(model.parameters()).is_cuda else PADDING
        self._gradients = cache(partial(_stacked_gradients, model))
        self._replayed: OrderedDict[Hashable, tuple[_Stack, _Replay]] = OrderedDict()
        self._replayable = model.replayable

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``; results come in job order."""
        results: dict[int, ClientResult] = {}
        for chosen in self.blocks(jobs):
            with products_in(training.precision), _on_device_of(params):
                block = self._run_block([jobs[i] for i in chosen], params, training)
            results.update(zip(chosen, block, strict=True))
        return (results[i] for i in range(len(jobs)))

    def blocks(self, jobs: Sequence[ClientJob]) -> list[list[int]]:
        """Return positions of jobs of similar size."""
        return list(blocks(jobs, self.block, self._padding))

    def _run_block(self, jobs: list[ClientJob], params: Params, training: LocalTraining) -> list[ClientResult]:
        on_gpu = next(iter(params.values())).is_cuda
        # Noise comes from the CPU's generators at every step, and Adam counts its steps there.
        replays = on_gpu and self._replayable and not training.noise and training.optimiser != "adam"
        index, mask = _pad_schedules(jobs, training, few_shapes=replays)
        if (dense := self._by_products(jobs, params, training)) is not None:
            updates, losses = few_examples.train(dense, jobs, params, training, index, mask)
            return _results(jobs, updates, losses / mask.amax(2).sum(1), {})
        # Few clients fill their last batch; a step that is replayed has one shape.
        widths = None if replays else mask.sum(2).amax(0).int().tolist()
        epoch = math.ceil(index.shape[1] / training.epochs)
        steps = _steps(jobs, index, mask.to(next(iter(params.values()))), epoch, widths)
        first = next(steps)
        stack, take_step = self._stack(jobs, params, training, *first, replays=replays)
        stack.start(jobs, params)
        for batch, here in chain([first], steps):
            take_step(batch, here)
        return stack.results(jobs, params, mask.amax(2).sum(1), copied=replays)

    def _by_products(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> DenseGradients | None:
        """Return the gradients of networks that train by inner products; None for those that take plain steps."""
        dense = self._gradients(training.precision)
        if not isinstance(dense, DenseGradients) or next(iter(params.values())).is_cuda:
            return None
        n = max(num_examples(job.examples) for job in jobs)
        return dense if few_examples.are_few(n, dense, params, training) else None

    def _stack(
        self,
        jobs: Sequence[ClientJob],
        params: Params,
        training: LocalTraining,
        batch: Params,
        mask: Tensor,
        *,
        replays: bool,
    ) -> tuple[_Stack, Callable[[Params, Tensor], None]]:
        """Return a stack for these jobs and what takes a step of it: a replay of the captured one, on a GPU."""
        shapes = tuple((name, column.shape, column.dtype) for name, column in (*batch.items(), *params.items()))
        key = (training, shapes, tuple(jobs[0].private))
        if key in self._replayed:
            self._replayed.move_to_end(key)
            stack, replay = self._replayed[key]
            return stack, replay
        stack = _Stack(jobs, len(mask), params, training, self._gradients(training.precision))
        if not replays:
            return stack, stack.step
        replay = _Replay(stack, batch, mask)
        self._replayed[key] = stack, replay
        if len(self._replayed) > CAPTURED:
            self._replayed.popitem(last=False)
        return stack, replay


class _Stack:
    """The parameters of k clients that train together, their optimiser and their summed losses, changed in place."""

    def __init__(
        self,
        jobs: Sequence[ClientJob],
        k: int,
        params: Params,
        training: LocalTraining,
        gradients_of: Callable[..., Any],
    ) -> None:
        self._shared, self._noise, self._gradients_of = tuple(params), training.noise, gradients_of
        like = {**params, **jobs[0].private}
        self._parameters = {name: p.new_empty(k, *p.shape) for name, p in like.items()}
        self._stepper = Stepper(training, list(self._parameters.values()))
        self._losses = torch.zeros(k, dtype=torch.float64, device=next(iter(params.values())).device)
        self._rngs: list[torch.Generator] = []

    @torch.no_grad()
    def start(self, jobs: Sequence[ClientJob], params: Params) -> None:
        """Give every client the received parameters, or its own private ones; rows beyond the jobs are as the first."""
        for name, stacked in self._parameters.items():
            if name in params:
                stacked.copy_(params[name])
            else:
                torch.stack([job.private[name] for job in jobs], out=stacked[: len(jobs)])
                stacked[len(jobs) :] = jobs[0].private[name]
        self._stepper.reset()
        self._losses.zero_()
        self._rngs = [noise_rng(job) for job in jobs] if self._noise else []

    def step(self, batch: Params, mask: Tensor) -> None:
        """Take one step of all clients on their batches (k, b, ...); ``mask`` (k, b) is 1 for rows that count."""
        gradients, losses = self._gradients_of(self._parameters, batch, mask)
        active = mask.amax(1)
        if self._noise:
            shared = {name: whole(gradients[name]) for name in self._shared}
            gradients = {**gradients, **_noised_rows(shared, self._noise, self._rngs, active)}
        self._stepper([gradients[name] for name in self._parameters], active)
        self._losses += losses

    @torch.no_grad()
    def results(self, jobs: Sequence[ClientJob], params: Params, steps: Tensor, *, copied: bool) -> list[ClientResult]:
        """Return what the jobs return after their numbers of ``steps`` (k,); ``copied`` where the stack lives on."""
        updates = [
            torch.sub(self._parameters[name], params[name], out=None if copied else self._parameters[name])
            for name in self._shared
        ]
        private = {name: self._parameters[name] for name in jobs[0].private}
        return _results(jobs, dict(zip(self._shared, updates, strict=True)), self._losses.cpu() / steps, private)


def _results(jobs: Sequence[ClientJob], updates: Params, losses: Tensor, private: Params) -> list[ClientResult]:
    """Return the results of the jobs: their rows of ``updates``, ``losses`` and ``private`` parameters (k, ...)."""
    rows = zip(*(update.unbind(0) for update in updates.values()), strict=True)
    return [
        ClientResult(
            device_id=job.device_id,
            update=dict(zip(updates, row, strict=True)),
            num_examples=num_examples(job.examples),
            loss=loss,
            private={name: stacked[k].clone() for name, stacked in private.items()},
        )
        for k, (job, row, loss) in enumerate(zip(jobs, rows, losses.tolist(), strict=False))
    ]


class _Replay:
    """The step of a stack as a CUDA graph: one launch for all of its kernels, which otherwise wait for the CPU."""

    def __init__(self, stack: _Stack, batch: Params, mask: Tensor) -> None:
        """Capture it. ``batch`` and ``mask`` have the shapes of all that follow; the stack's state is spoiled."""
        self._batch, self._mask = {name: column.clone() for name, column in batch.items()}, mask.clone()
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # libraries allocate what they need on the first calls, which no graph may
            for _ in range(2):
                stack.step(self._batch, self._mask)
        torch.cuda.current_stream().wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # another thread may copy updates
            stack.step(self._batch, self._mask)

    def __call__(self, batch: Params, mask: Tensor) -> None:
        """Take the captured step on another batch."""
        torch._foreach_copy_([*self._batch.values(), self._mask], [*batch.values(), mask])
        self._graph.replay()


def _on_device_of(params: Params) -> AbstractContextManager[Any]:
    tensor = next(iter(params.values()))
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _stacked_gradients(model: FedModule, precision: Precision) -> Callable[..., Any]:
    """Return the model's hand-written gradients, or else those of ``vmap``.

    The former know no bfloat16. Those of convolutions are made for the caches of a CPU.
    """
    by_hand = None if precision == "bf16" else model.stacked_gradients()
    if isinstance(by_hand, ConvGradients) and next(model.parameters()).is_cuda:
        by_hand = None
    return by_hand or vmap(grad_and_value(_masked_loss(model.for_vmap(), precision)))


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


def _pad_schedules(jobs: Sequence[ClientJob], training: LocalTraining, *, few_shapes: bool) -> tuple[Tensor, Tensor]:
    """Return each client's rows at every step, and a mask, 1 for rows that count: both (k, steps, batch).

    Short batches are padded with the client's first example. A client with fewer steps has its own without a pause, so
    that no state of an optimiser changes between them. ``few_shapes`` pads clients and batches to powers of two, so
    that stacks of many sizes have few shapes.
    """
    sizes = [num_examples(job.examples) for job in jobs]
    k, width = len(jobs), max(sizes)
    if few_shapes:
        k, width = _power_of_two(k), _power_of_two(width)
    width = min(training.batch_size, width)
    lengths = np.array([math.ceil(n / width) * width for n in sizes])  # of an epoch, in rows
    index = np.zeros((k, training.epochs * int(lengths.max())), dtype=np.int64)
    mask = np.zeros(index.shape, dtype=np.float32)
    for row, (job, n, length) in enumerate(zip(jobs, sizes, lengths.tolist(), strict=True)):
        for epoch, order in enumerate(epochs(n, training, job.seed)):
            start = epoch * length
            index[row, start : start + n] = order.numpy()
            mask[row, start : start + n] = 1
    shape = (k, -1, width)
    return torch.from_numpy(index).view(shape), torch.from_numpy(mask).view(shape)


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not below ``number``."""
    return 1 << (number - 1).bit_length()


def _steps(
    jobs: Sequence[ClientJob], index: Tensor, mask: Tensor, epoch: int, widths: Sequence[int] | None
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Yield the batch (k, b, ...) and the mask (k, b) of every step; examples are copied once for ``epoch`` steps.

    Of the rows of a step the first of ``widths`` are given, or all.
    """
    parts = [job.examples for job in jobs] + [jobs[0].examples] * (len(index) - len(jobs))
    widths = widths or [index.shape[2]] * index.shape[1]
    for start in range(0, index.shape[1], epoch):
        rows, masks = index[:, start : start + epoch], mask[:, start : start + epoch]
        taken = stack_rows(parts, rows.flatten(1))
        columns = {name: values.view(*rows.shape, *values.shape[2:]) for name, values in taken.items()}
        for t, width in enumerate(widths[start : start + epoch]):
            yield {name: values[:, t, :width] for name, values in columns.items()}, masks[:, t, :width]
