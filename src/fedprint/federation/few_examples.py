"""One epoch of stacked, fully connected networks by inner products of their examples, where these are few."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedprint.data.examples import stack_rows
from fedprint.federation.local_optimisers import Stepper
from fedprint.models.kernels.dense import DenseGradients, FirstLayer
from fedprint.types import ClientJob, LocalTraining, Params

MOST = 2
"""The most examples for each output of the first layer. These take at most 2 times the multiplications of plain steps,
in large products of what stays in the cache."""


def are_few(n: int, dense: DenseGradients, params: Params, training: LocalTraining) -> bool:
    """Return whether training on ``n`` examples pays by their inner products; plain SGD alone can do so."""
    once = training.optimiser == "sgd" and not training.noise and training.epochs == 1
    return once and n <= MOST * len(params[f"{dense.layers[0]}.weight"])


@torch.no_grad()
def train(
    dense: DenseGradients,
    jobs: Sequence[ClientJob],
    params: Params,
    training: LocalTraining,
    index: Tensor,
    mask: Tensor,
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the updates (k, ...) of k jobs and the sums of their losses (k,).

    ``index`` and ``mask`` (k, steps, batch) are their examples at every step, and 1 for those that count.
    """
    examples = stack_rows([job.examples for job in jobs], index.flatten(1))
    weight, bias = f"{dense.layers[0]}.weight", f"{dense.layers[0]}.bias"
    first = FirstLayer(params[weight], params.get(bias), dense.inputs(examples["x"]), index.shape[2])
    above = {name: p.expand(len(jobs), *p.shape).clone() for name, p in params.items() if name not in (weight, bias)}
    weights = mask.to(params[weight]) / mask.sum(2, keepdim=True).clamp(min=1)
    step, scores = Stepper(training, list(above.values())), []
    for y, shares in zip(torch.split(examples["y"], index.shape[2], 1), weights.unbind(1), strict=True):
        gradients, slopes, found = dense.above_first(above, first.outputs(), y, shares)
        first.step(slopes, training.lr)
        step([gradients[name] for name in above])
        scores.append(found)
    losses = dense.losses(torch.cat(scores, 1), examples["y"]) * weights.flatten(1)
    moved = dict(zip((weight, bias), first.moved(), strict=True))
    updates = {name: moved[name] if name in moved else above[name].sub_(p) for name, p in params.items()}
    return updates, losses.sum(1, dtype=torch.float64)
