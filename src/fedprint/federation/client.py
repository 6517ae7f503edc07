"""Local training as pure functions, shared by every backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedprint.data.examples import INPUTS, gathered
from fedprint.federation.local_optimisers import Stepper
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, ClientResult, Examples, LocalTraining, Params


def batch_schedule(n: int, training: LocalTraining, seed: int) -> list[Tensor]:
    """Return the example indices of every step of local training, in order.

    Each epoch is a fresh permutation cut into batches of ``batch_size``; the last batch of an epoch may be shorter and
    is never empty. Every backend reads its batches from here, which is why backends agree.
    """
    rng = torch.Generator().manual_seed(seed)
    steps: list[Tensor] = []
    for _ in range(training.epochs):
        steps.extend(torch.split(torch.randperm(n, generator=rng), training.batch_size))
    return steps


def train_client(
    model: Callable[[Examples], Tensor],
    parameters: list[Tensor],
    received: Params,
    job: ClientJob,
    training: LocalTraining,
) -> ClientResult:
    """Run local training from ``received`` and return its result with the update ``w - w_t``.

    ``parameters`` are the model's own tensors: those of ``received``, then those of the job's private ones, which train
    too and go into the result's ``private``, never into its update.
    """
    start = [*received.values(), *job.private.values()]
    with torch.no_grad():
        torch._foreach_copy_(parameters, start)
    shared = len(received)
    examples = gathered(job.examples)
    schedule = batch_schedule(len(examples["y"]), training, job.seed)
    step, rng = Stepper(training, parameters), noise_rng(job)
    total = torch.zeros((), dtype=torch.float64, device=start[0].device)
    for index in schedule:
        loss = model(batch_of(examples, index)).mean()
        gradients = torch.autograd.grad(loss, parameters)
        step([*noised(gradients[:shared], training.noise, rng), *gradients[shared:]])
        total += loss.detach()
    with torch.no_grad():
        moved = torch._foreach_sub(parameters[:shared], start[:shared])
        update = {name: difference.contiguous() for name, difference in zip(received, moved, strict=True)}
        kept = zip(job.private, parameters[shared:], strict=True)
        private = {name: p.detach().clone(memory_format=torch.contiguous_format) for name, p in kept}
    return ClientResult(
        device_id=job.device_id,
        update=update,
        num_examples=len(examples["y"]),
        loss=float(total) / len(schedule),
        private=private,
    )


def noise_rng(job: ClientJob) -> torch.Generator:
    """Return the generator for the noise of a job's gradients; it is independent of the batches."""
    return torch_rng(job.seed, "gradient-noise")


def noised(gradients: Sequence[Tensor], sigma: float, rng: torch.Generator) -> list[Tensor]:
    """Return ``gradients + N(0, sigma^2)``, drawn on the CPU so that it is the same for every backend and device."""
    if sigma == 0:
        return list(gradients)
    drawn = (torch.randn(g.shape, generator=rng, dtype=g.dtype).to(g.device) for g in gradients)
    return [gradient + sigma * noise for gradient, noise in zip(gradients, drawn, strict=True)]


def batch_of(examples: Examples, index: Tensor) -> dict[str, Tensor]:
    """Return the model's columns at ``index`` (b,)."""
    return {name: examples[name][index] for name in INPUTS if name in examples}
