"""Local training as pure functions, shared by every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedprint.data.examples import INPUTS, gathered, num_examples
from fedprint.federation.local_optimisers import Stepper
from fedprint.federation.precision import forward_in
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, ClientResult, Examples, LocalTraining, Params

Compact = Callable[[Examples], tuple[Examples, Mapping[str, Tensor]]]
PADDING = 0.15
"""The most of a stack's rows, on a CPU, that stand in for examples which smaller clients lack."""


def epochs(n: int, training: LocalTraining, seed: int) -> list[Tensor]:
    """Return the order of the examples in every epoch: fresh permutations, the same for every backend."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randperm(n, generator=rng) for _ in range(training.epochs)]


def batch_schedule(n: int, training: LocalTraining, seed: int) -> list[Tensor]:
    """Return the example indices of every step of local training, in order.

    The order of each epoch is cut into batches of ``batch_size``; the last one may be shorter and is never empty.
    """
    return [batch for order in epochs(n, training, seed) for batch in torch.split(order, training.batch_size)]


def blocks(jobs: Sequence[ClientJob], size: int, padding: float) -> Iterator[list[int]]:
    """Yield positions of at most ``size`` jobs of similar size, the largest first.

    Each client of a block takes as many rows as the largest; at most a share ``padding`` of them is not its own. Jobs
    with and without private parameters are not mixed. The blocks of a block are itself.
    """
    sizes = [num_examples(job.examples) for job in jobs]
    for private in (False, True):
        alike = [i for i in range(len(jobs)) if bool(jobs[i].private) is private]
        block: list[int] = []
        own = 0
        for i in sorted(alike, key=lambda i: -sizes[i]):
            own += sizes[i]
            widest = sizes[block[0] if block else i]
            if len(block) == size or own < (1 - padding) * (len(block) + 1) * widest:
                yield block
                block, own = [], sizes[i]
            block.append(i)
        if block:
            yield block


def train_client(
    model: Callable[[Examples], Tensor],
    parameters: list[Tensor],
    received: Params,
    job: ClientJob,
    training: LocalTraining,
    compact: Compact = lambda examples: (examples, {}),
) -> ClientResult:
    """Run local training from ``received`` and return its result with the update ``w - w_t``.

    ``parameters`` are the model's own tensors: those of ``received``, then those of the job's private ones, which train
    too and go into the result's ``private``, never into its update. ``compact`` (see
    :meth:`fedprint.models.base.FedModule.compact`) leaves out rows that only noise would move.
    """
    examples, rows = compact(gathered(job.examples)) if not training.noise else (gathered(job.examples), {})
    taken = {name: tensor[rows[name]] if name in rows else tensor for name, tensor in received.items()}
    start = [*taken.values(), *job.private.values()]
    with torch.no_grad():
        for parameter, tensor in zip(parameters, start, strict=True):
            if parameter.shape != tensor.shape:
                parameter.data = torch.empty_like(tensor)
        torch._foreach_copy_(parameters, start)
    shared = len(received)
    step, rng, steps = Stepper(training, parameters), noise_rng(job), 0
    total = torch.zeros((), dtype=torch.float64, device=start[0].device)
    for batch in _batches(examples, training, job.seed):
        steps += 1
        loss, gradients = autograd(model, parameters, batch, training)
        step([*noised(gradients[:shared], training.noise, rng), *gradients[shared:]])
        total += loss
    with torch.no_grad():
        moved = torch._foreach_sub(parameters[:shared], start[:shared])
        update = {name: difference.contiguous() for name, difference in zip(received, moved, strict=True)}
        update |= {name: torch.zeros_like(received[name]).index_copy_(0, rows[name], update[name]) for name in rows}
        kept = zip(job.private, parameters[shared:], strict=True)
        private = {name: p.detach().clone(memory_format=torch.contiguous_format) for name, p in kept}
    return ClientResult(
        device_id=job.device_id,
        update=update,
        num_examples=len(examples["y"]),
        loss=float(total) / steps,
        private=private,
    )


def autograd(
    model: Callable[[Examples], Tensor], parameters: Sequence[Tensor], batch: Examples, training: LocalTraining
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the mean loss () of a batch and its gradients."""
    with forward_in(training.precision, parameters[0].device):
        loss = model(batch).mean()
    return loss.detach(), torch.autograd.grad(loss, parameters)


def noise_rng(job: ClientJob) -> torch.Generator:
    """Return the generator for the noise of a job's gradients; it is independent of the batches."""
    return torch_rng(job.seed, "gradient-noise")


def noised(gradients: Sequence[Tensor], sigma: float, rng: torch.Generator) -> list[Tensor]:
    """Return ``gradients + N(0, sigma^2)``, drawn on the CPU so that it is the same for every backend and device."""
    if sigma == 0:
        return list(gradients)
    drawn = (torch.randn(g.shape, generator=rng, dtype=g.dtype).to(g.device) for g in gradients)
    return [gradient + sigma * noise for gradient, noise in zip(gradients, drawn, strict=True)]


def _batches(examples: Examples, training: LocalTraining, seed: int) -> Iterator[dict[str, Tensor]]:
    """Yield the model's columns at every step of :func:`batch_schedule`; those of an epoch are copied at once."""
    for order in epochs(len(examples["y"]), training, seed):
        taken = batch_of(examples, order.to(examples["y"].device))
        for columns in zip(*(torch.split(c, training.batch_size) for c in taken.values()), strict=True):
            yield dict(zip(taken, columns, strict=True))


def batch_of(examples: Examples, index: Tensor) -> dict[str, Tensor]:
    """Return the model's columns at ``index`` (b,)."""
    return {name: examples[name].index_select(0, index) for name in INPUTS if name in examples}
