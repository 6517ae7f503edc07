"""The output layer of a language model with its loss, in fewer passes over the scores than autograd makes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of a linear layer's scores: the same values as with ``cross_entropy(linear(...))``.

    Scores over a vocabulary are most of a language model's memory and time. Their softmax is kept in place of the
    scores, and becomes the gradient without another pass.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> Tensor:
        """Return losses (m,) of ``states`` (m, hidden), ``weight`` (vocabulary, hidden), ``bias`` and targets (m,)."""
        scores = torch.addmm(bias, states, weight.T)
        top, at = scores.max(1, keepdim=True)
        chosen = y.unsqueeze(1)
        p = scores.softmax(1)
        # the largest score has probability 1 / sum, where that of a target may underflow
        losses = (top - p.gather(1, at).log() - scores.gather(1, chosen)).squeeze(1)
        p.scatter_add_(1, chosen, torch.full_like(top, -1))
        ctx.save_for_backward(p, states, weight)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of states, weight and bias."""
        slopes, states, weight = ctx.saved_tensors
        by_loss = grad.unsqueeze(1)
        return (slopes @ weight) * by_loss, slopes.T @ (states * by_loss), slopes.T @ grad, None
